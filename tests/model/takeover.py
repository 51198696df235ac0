"""The state that the model explores, and what a takeover makes of it. See survival_check.py."""
from collections import namedtuple
from itertools import combinations, product

BAD = -1                                # rubbish

# A voter. inc: grows with every restart. staged: (set, content, 1 prepared | 2 stored), in memory.
# log: records (set, content, holders); trim: all sets up to this one are durable in place
# everywhere. bit: the region is marked. prom: the highest epoch granted. view: the newest recorded.
# events: of the superblock. cleared: of the bitmap's superblock, events_cleared; trimmed: the same
# in the journal's header. past: what an observer knows: the store is a copy that was put back.
Node = namedtuple('Node', 'inc disk cache staged log trim bit prom view events cleared trimmed '
                  'past')
# members: the in-sync set S; incs: their restarts when it was recorded; torn: a resync is due.
View = namedtuple('View', 'epoch count members incs torn')
# A client. ph: G granting, A activating, S settling, R running. to: the view being recorded, by
# rec voters so far. s: the slice-set in progress (log: it is logged), prepared at prep, decided
# (go), closed at closed. fl: members that flushed. join: caught up and taking part, not in S yet.
# clean: all is flushed in place. incs: restarts known (connections). reached: voters that it has
# heard of; granted: those when it formed. events: the highest that it knows or has begun to write;
# ticked: members that have these since the last flush. cleared: the highest that it knows.
Client = namedtuple('Client', 'epoch ph view to rec s log prep go closed fl join clean incs '
                    'reached granted decided settled wrote views events ticked cleared')
# Of a data block. acked; pending: issued, not answered; hard: mask of what may be there after a
# power failure.
Block = namedtuple('Block', 'acked pending hard')
ANY = 1 << 30                   # in hard: anything, rubbish included (unlogged whole stripe)
# copy: None, then (member, its store as it was), then PUT_BACK.
State = namedtuple('State', 'nodes clients blocks issued crashes cuts served copy')
NO_CLIENT, PUT_BACK = None, ()
# Of a takeover: mask of slice-sets that go; trim mark and its count, which all adopt.
Decision = namedtuple('Decision', 'go trim trimmed')
NOTHING = Decision(0, 0, 0)


class Config:
    """cells: per member the data index, or None for a parity. sets: blocks that each one writes.

    views: changes of the view by each client. copies: mask of members whose store may go back to a
    copy of itself. marked: the first client has written and flushed before, and only clears."""

    def __init__(self, name, cells, f, sets, policy, crashes=0, cuts=0, witnesses=0, views=1,
                 clients=2, copies=0, marked=False, off=()):
        self.name, self.cells, self.f, self.sets, self.policy = name, cells, f, sets, policy
        self.crashes, self.cuts, self.views, self.off = crashes, cuts, views, frozenset(off)
        self.clients, self.copies, self.marked = clients, copies, marked
        self.n, self.voters = len(cells), len(cells) + witnesses
        self.data = max(c for c in cells if c is not None) + 1
        self.all = (1 << self.n) - 1
        self.q = self.voters // 2 + 1           # grants that a takeover needs
        self.rq = self.voters - self.q + 1      # records that a view needs
        if 'record-quorum' in self.off:
            self.rq -= 1
        self.home = {c: i for i, c in enumerate(cells) if c is not None}
        self.parities = [i for i, c in enumerate(cells) if c is None]
        parities = sum(1 << p for p in self.parities)
        self.roles = [0] + [sum(1 << self.home[b] for b in w) + parities for w in sets]
        self.losses = [sum(1 << i for i in lost)
                       for k in range(f + 1) for lost in combinations(range(self.n), k)]
        self.memo = {}

    def whole(self, s):
        return len(self.sets[s - 1]) == self.data

    def survives(self, members):
        """Are as many members enough?"""
        return self.n - size(members) <= self.f


def bits(mask):
    i = 0
    while mask:
        if mask & 1:
            yield i
        mask >>= 1
        i += 1


def lowest(mask):
    return mask & -mask


def size(mask):
    return bin(mask).count('1')


def mask_of(numbers):
    return sum(1 << i for i in numbers)


def now(node):
    return node.cache[-1] if node.cache else node.disk


def put(nodes, i, **change):
    return nodes[:i] + (nodes[i]._replace(**change),) + nodes[i + 1:]


def read(cfg, content, members):
    """The data blocks, from the members that there are; content: by member."""
    values = [content[cfg.home[b]] if members >> cfg.home[b] & 1 else None for b in range(cfg.data)]
    gone = [b for b in range(cfg.data) if values[b] is None]
    if not gone:
        return values
    sums = [content[p] for p in cfg.parities if members >> p & 1]
    if len(sums) < len(gone):
        return None
    known = [b for b in range(cfg.data) if b not in gone]
    fits = all(sums[0][b] == values[b] != BAD for b in known)
    fits = fits and (len(gone) == 1 or sums[0] == sums[1])
    for b in gone:
        values[b] = sums[0][b] if fits else BAD
    return values


# --- Stores from the past -------------------------------------------------------------------------

def highest_cleared(cfg, nodes, reached):
    """The highest events_cleared of these members."""
    return max([nodes[i].cleared for i in bits(reached & cfg.all)], default=0)


def in_the_past(cfg, nodes, reached):
    """Members whose superblock is older than what somebody cleared or trimmed."""
    if 'past-noticed' in cfg.off:
        return 0
    known = [max(nodes[i].cleared, nodes[i].trimmed) for i in bits(reached & cfg.all)]
    return mask_of(i for i in bits(reached & cfg.all) if nodes[i].events < max(known))


def lacks_more_than_marks_say(cfg, node, cleared):
    """Was anything cleared since the member was last told of the count?"""
    return node.events < cleared and 'past-noticed' not in cfg.off


def as_old_as_its_copy(cfg, nodes, blocks, members, reached):
    """What is not promised: after a loss of power a copy counts as in sync, and what was written
    since is still marked, and not trimmed: no count tells them apart."""
    rest = [i for i in bits(members) if not nodes[i].past]
    if len(rest) == size(members):
        return False
    trim = max(nodes[i].trim for i in bits(reached & cfg.all))
    newest = max(max(b.acked, b.pending) for b in blocks)
    return not rest or any(nodes[i].bit for i in rest) and newest > trim


# --- Takeover: who holds the array, what goes -----------------------------------------------------

def newest(cfg, nodes, reached):
    views = [nodes[i].view for i in bits(reached)]
    if 'view-order' in cfg.off:
        return max(views, key=lambda v: v.count)
    return max(views, key=lambda v: (v.epoch, v.count))


def kept(cfg, nodes, view, there):
    """Those who have run ever since the view was recorded."""
    return mask_of(i for i in bits(there)
                   if nodes[i].inc == view.incs[i] or 'restart-noticed' in cfg.off)


def holds(node, s):
    return any(r[0] == s for r in node.log) or (node.staged is not None and node.staged[0] == s)


def form(cfg, nodes, reached):
    """Who is in sync, whether a resync is due, what goes; or why the array does not start."""
    # A copy has forgotten grants and views: nothing is promised where its vote decides.
    if size(reached) - sum(nodes[i].past for i in bits(reached)) < cfg.q:
        return 'too few voters'
    view = newest(cfg, nodes, reached)
    past = in_the_past(cfg, nodes, reached)
    for i in bits(past & view.members):
        if not nodes[i].past:
            return f'I8 member {i} is in sync, and taken for one from the past'
    there = view.members & reached & ~past
    ever_since = kept(cfg, nodes, view, there)
    if not view.torn and cfg.survives(ever_since):
        members, torn = ever_since, False
    else:
        if not cfg.survives(there):
            return 'too few members'
        members, torn = there, any(nodes[i].bit for i in bits(there))
        refuses = cfg.policy == 'bitmap' and 'dirty-degraded' not in cfg.off
        if torn and members != cfg.all and refuses:
            return 'dirty and degraded'
    trim = max(nodes[i].trim for i in bits(members)) if members else 0
    go = going(cfg, nodes, members, trim)
    if 'mark-passed-on' in cfg.off or not members:
        return members, torn, Decision(go, 0, 0)
    return members, torn, Decision(go, trim, max(nodes[i].trimmed for i in bits(members)))


def going(cfg, nodes, members, trim):
    """The slice-sets that all have who have a part in them."""
    found = {}
    for i in bits(members):
        for s, _, holders in nodes[i].log:
            found[s] = holders
        if nodes[i].staged:
            found.setdefault(nodes[i].staged[0], cfg.roles[nodes[i].staged[0]])
    decided = 0
    for s, holders in found.items():
        mine = [nodes[i] for i in bits(holders & members)]
        if 'all-hold' in cfg.off:
            go = any(holds(nd, s) for nd in mine)
        elif 'prepared-counts' in cfg.off:
            go = any(nd.staged and nd.staged[0] == s and nd.staged[2] == 2 for nd in mine)
        else:
            go = all(holds(nd, s) for nd in mine)
        if 'trim-mark' not in cfg.off:
            go = go and s > trim
        decided |= go << s
    return decided


def settle(cfg, node, decision):
    """Store what goes, from memory or journal, in order; forget the rest; flush."""
    contents = {s: content for s, content, _ in node.log}
    if node.staged and node.staged[2] == 1:
        contents[node.staged[0]] = node.staged[1]
    go = sorted((s for s in contents if decision.go >> s & 1), reverse='replay-order' in cfg.off)
    disk = contents[go[-1]] if go else now(node)
    staged = node.staged
    if staged:
        staged = (staged[0], staged[1], 2) if decision.go >> staged[0] & 1 else None
    log = tuple(r for r in node.log if decision.go >> r[0] & 1)
    return node._replace(disk=disk, cache=(), staged=staged, log=log,
                         trim=max(node.trim, decision.trim),
                         trimmed=max(node.trimmed, decision.trimmed))


def resync(cfg, nodes, members):
    values = read(cfg, [now(nd) for nd in nodes], members)
    for p in cfg.parities:
        if members >> p & 1:
            nodes = put(nodes, p, disk=tuple(values), cache=())
    return nodes


# --- What has to hold -----------------------------------------------------------------------------

def judge(blocks, values, hard, degraded):
    """The invariant that what is read breaks, if any."""
    for b, block in enumerate(blocks):
        x, quiet = values[b], block.hard == 1 << block.acked and not block.pending
        fine = x == block.acked or x == block.pending != 0
        if hard:
            fine = fine or x >= 0 and block.hard >> x & 1 or degraded and block.hard & ANY
        if fine:
            continue
        if quiet:
            return f'I2 block {b} reads {x}, not {block.acked}, and nobody was writing it'
        if x == BAD:
            return f'I3 block {b} is rubbish, neither old nor new'
        known = 'flushed' if hard else 'acknowledged'
        return f'I1 block {b} reads {x}, {block.acked} was {known}'
    return None


def check_takeover(cfg, nodes, blocks, reached):
    """A client that is not disturbed takes over with these nodes."""
    outcome = form(cfg, nodes, reached)
    if isinstance(outcome, str):
        return outcome if outcome[:2] == 'I8' else refused(cfg, nodes, reached, outcome)
    members, torn, decision = outcome
    view = newest(cfg, nodes, reached)
    hard = view.torn or not cfg.survives(kept(cfg, nodes, view, view.members & reached))
    if hard and as_old_as_its_copy(cfg, nodes, blocks, members, reached):
        return None
    dirty = any(nodes[i].bit for i in bits(members))
    for i in bits(members):
        nodes = nodes[:i] + (settle(cfg, nodes[i], decision),) + nodes[i + 1:]
    if torn:
        nodes = resync(cfg, nodes, members)
    values = read(cfg, [nd.disk for nd in nodes], members)
    wrong = judge(blocks, values, hard, members != cfg.all)
    if wrong or BAD in values:
        return wrong
    cleared = highest_cleared(cfg, nodes, reached)
    for i in range(cfg.n):
        right = values[cfg.cells[i]] if cfg.cells[i] is not None else tuple(values)
        if members >> i & 1 and nodes[i].disk != right:
            return f'I5 member {i} is in sync and does not fit, and is not marked'
        given = dirty or lacks_more_than_marks_say(cfg, nodes[i], cleared)
        if reached >> i & 1 and not members >> i & 1 and not given and now(nodes[i]) != right:
            return f'I5 member {i} is stale, and nothing is marked dirty for it'
    return None


def refused(cfg, nodes, reached, why):
    """The array does not start, which it has to when all are there."""
    members = newest(cfg, nodes, reached).members
    honest = cfg.policy == 'bitmap' and why == 'dirty and degraded'
    left = mask_of(i for i in bits(members) if not nodes[i].past)
    honest = honest or why == 'too few members' and not cfg.survives(left)
    if reached != (1 << cfg.voters) - 1 or honest:
        return None
    return f'I6 all nodes are there, and it does not start: {why}'


def outcomes(node):
    return (node.disk,) + node.cache if node.disk is not None else (None,)


def restarted(cfg, node, disk):
    prom = 0 if 'promise-durable' in cfg.off else node.prom
    return node._replace(inc=node.inc + 1, disk=disk, cache=(), staged=None, prom=prom)


def power_cuts(cfg, nodes):
    """What a loss of power everywhere may leave."""
    for disks in product(*[dict.fromkeys(outcomes(nd)) for nd in nodes]):
        yield disks, tuple(restarted(cfg, nd, d) for nd, d in zip(nodes, disks))


def check(cfg, nodes, blocks):
    """The invariant that some takeover from here breaks, if any."""
    key = (nodes, blocks)
    if key in cfg.memo:
        return cfg.memo[key]
    wrong = None
    everybody = (1 << cfg.voters) - 1
    for lost in cfg.losses:
        wrong = wrong or check_takeover(cfg, nodes, blocks, everybody & ~lost)
    if not wrong:
        for _, cut in power_cuts(cfg, nodes):
            for lost in cfg.losses:
                wrong = wrong or check_takeover(cfg, cut, blocks, everybody & ~lost)
    cfg.memo[key] = wrong
    return wrong
