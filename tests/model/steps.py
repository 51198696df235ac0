"""What may happen next, in any state: clients' steps, and troubles. See survival_check.py."""
from takeover import (ANY, BAD, NOTHING, NO_CLIENT, PUT_BACK, Block, Client, View, bits, form,
                      as_old_as_its_copy, highest_cleared, judge, kept,
                      lacks_more_than_marks_say, lowest, mask_of, newest, now, outcomes,
                      power_cuts, put, read, restarted, resync, settle, size)


def steps(cfg, st):
    """All (label, next state or a broken invariant)."""
    for k, c in enumerate(st.clients):
        if c is not NO_CLIENT:
            yield from Move(cfg, st, k).all()
        elif k == 1 and cfg.clients > 1:
            fresh = Client(2, 'G', None, None, 0, 0, False, 0, 0, 0, 0, 0, False, (-1,) * cfg.n,
                           0, 0, NOTHING, 0, False, 0, 0, 0, 0)
            yield 'client 2 comes', st._replace(clients=(st.clients[0], fresh))
    yield from troubles(cfg, st)
    if cfg.copies:
        yield from back_in_time(cfg, st)


def troubles(cfg, st):
    nodes = st.nodes
    if st.crashes < cfg.crashes:
        for i in range(cfg.voters):
            for disk in dict.fromkeys(outcomes(nodes[i])):
                after = nodes[:i] + (restarted(cfg, nodes[i], disk),) + nodes[i + 1:]
                yield (f'node {i} restarts with {disk}',
                       st._replace(nodes=after, crashes=st.crashes + 1))
    if st.cuts < cfg.cuts:
        for disks, cut in power_cuts(cfg, nodes):
            yield f'the power fails, leaving {disks}', st._replace(nodes=cut, cuts=st.cuts + 1)


def back_in_time(cfg, st):
    """A store is copied, as a crash would leave it; later it is put back, while its node is down.
    Vote file and superblock are as old; the node draws a new incarnation."""
    if st.copy is None:
        for i in bits(cfg.copies):
            for disk in dict.fromkeys(outcomes(st.nodes[i])):
                copy = restarted(cfg, st.nodes[i], disk)._replace(inc=0)
                yield f'the store of {i} is copied, with {disk}', st._replace(copy=(i, copy))
    elif st.copy != PUT_BACK:
        i, copy = st.copy
        # Whoever was granted an epoch has it without this one, too: see `form`.
        others = [c for c in st.clients if c is not NO_CLIENT and c.epoch > 1 and c.ph != 'G']
        if any(size(c.granted & ~(1 << i)) < cfg.q for c in others):
            return
        copy = copy._replace(inc=st.nodes[i].inc + 1, past=1)
        clients = tuple(c._replace(reached=c.reached & ~(1 << i)) if c and c.ph == 'G' else c
                        for c in st.clients)
        yield f'the copy of {i} is put back', st._replace(
            nodes=st.nodes[:i] + (copy,) + st.nodes[i + 1:], clients=clients, copy=PUT_BACK,
            crashes=st.crashes + 1)


def logged(cfg, members, s):
    """Is this slice-set written to the journals?"""
    if cfg.policy == 'bitmap':
        return False
    if cfg.policy == 'journal' or not cfg.whole(s):
        return True
    # A whole stripe, unlogged, unless it covers records that are not trimmed: they would be
    # replayed over it.
    return 'log-over-log' not in cfg.off and any(nd.log for nd in members)


def prepared_content(cfg, client, nodes, i, s):
    touched = cfg.sets[s - 1]
    if cfg.cells[i] is not None:
        return s
    if cfg.whole(s):
        return (s,) * cfg.data
    present = client.view.members | client.join
    sums = list(now(nodes[i]))

    def before(node):                           # what it held before this slice-set
        if node.staged and node.staged[0] == s and node.staged[2] == 2:
            return node.cache[-2] if len(node.cache) > 1 else node.disk
        return now(node)
    content = [before(nd) if j < cfg.n else None for j, nd in enumerate(nodes)]
    old = read(cfg, content, present)
    for b in touched:                           # by delta: the parity gets old and new of the block
        sums[b] = s if old is not None and old[b] == sums[b] else BAD
    return tuple(sums)


class Move:
    """What one client may do."""

    def __init__(self, cfg, st, k):
        self.cfg, self.st, self.k, self.c = cfg, st, k, st.clients[k]
        self.off, self.nodes = cfg.off, st.nodes
        self.later = st.clients[1] if k == 0 else None
        view = self.c.view
        self.present = view.members | self.c.join if view else 0

    def go_on(self, label, nodes=None, blocks=None, issued=None, served=None, **change):
        st, k = self.st, self.k
        clients = st.clients[:k] + (self.c._replace(**change),) + st.clients[k + 1:]
        return f'client {k + 1} {label}', st._replace(
            nodes=st.nodes if nodes is None else nodes, clients=clients,
            blocks=st.blocks if blocks is None else blocks,
            issued=st.issued if issued is None else issued,
            served=st.served if served is None else served)

    def reaches(self, i):
        """The node takes a message of this client's data path."""
        fresh = self.c.incs[i] == self.nodes[i].inc or 'reconnect' in self.off
        return fresh and (self.nodes[i].prom <= self.c.epoch or 'epoch-refused' in self.off)

    def logs(self):
        return any(self.nodes[j].log for j in bits(self.c.view.members))

    def all(self):
        c = self.c
        if c.ph == 'G':
            yield from self.asks_for_grants()
            yield from self.forms(c.reached, 1)
            return
        if c.to is not None:
            yield from self.records()
        if c.ph == 'S':
            yield from self.settles()
        if c.ph != 'R' or c.to is not None:
            return                              # nothing is answered while a view is recorded
        if c.s:
            yield from self.prepares()
            yield from self.answers()
            yield from self.stores()
        else:
            yield from self.flushes()
            yield from self.moves_counts()
            yield from self.clears()
        if self.cfg.marked and self.k == 0:
            return                              # it has written before, and does not any more
        if not c.s:
            yield from self.opens()
        if c.views < self.cfg.views:
            yield from self.excludes()
            yield from self.catches_up()
        yield from self.takes_in()

    # --- Takeover ---------------------------------------------------------------------------------

    def asks_for_grants(self):
        c, nodes = self.c, self.nodes
        for i in range(self.cfg.voters):
            if nodes[i].prom < c.epoch and not c.reached >> i & 1:
                yield self.go_on(f'is granted its epoch by {i}', put(nodes, i, prom=c.epoch),
                                 reached=c.reached | 1 << i)

    def forms(self, reached, number):
        cfg, c, nodes = self.cfg, self.c, self.nodes
        outcome = form(cfg, nodes, reached)
        if isinstance(outcome, str):
            if outcome.startswith('I8'):
                yield f'client {self.k + 1} forms', outcome
            return
        members, torn, decision = outcome
        view = newest(cfg, nodes, reached)
        hard = view.torn or not cfg.survives(kept(cfg, nodes, view, view.members & reached))
        if hard and as_old_as_its_copy(cfg, nodes, self.st.blocks, members, reached):
            return                              # what is promised ends here
        incs = tuple(nodes[i].inc if members >> i & 1 else -1 for i in range(cfg.n))
        to = View(c.epoch, number, members, incs, torn and 'torn-recorded' not in self.off)
        asked = members if 'count-above-all' in self.off else reached & cfg.all
        change = dict(incs=incs, reached=reached, granted=reached, decided=decision, settled=0,
                      clean=torn, rec=0, views=c.views + (number > 1), view=to,
                      events=max(nodes[i].events for i in bits(asked)),
                      cleared=highest_cleared(cfg, nodes, reached))
        if 'decide-after-view' in self.off:
            yield self.go_on(f'forms with {members:b}', ph='S', to=None, **change)
        else:
            yield self.go_on(f'forms with {members:b}', ph='A', to=to, **change)

    def records(self):
        cfg, c, nodes = self.cfg, self.c, self.nodes
        for i in range(cfg.voters):
            ok = nodes[i].prom <= c.epoch or 'epoch-refused' in self.off
            heard = self.k == 0 or c.reached >> i & 1
            if ok and heard and size(c.rec) < cfg.rq and not c.rec >> i & 1:
                if c.to.members >> i & 1 and c.to.incs[i] != nodes[i].inc:
                    continue
                yield self.go_on(f'has its view recorded by {i}', put(nodes, i, view=c.to),
                                 rec=c.rec | 1 << i)
        if size(c.rec) >= cfg.rq:
            for i in bits(c.to.members):
                if c.to.incs[i] == nodes[i].inc:
                    nodes = put(nodes, i, past=0)       # a majority has a view that knows it
            yield self.go_on('has its view', nodes, ph='S' if c.ph == 'A' else c.ph, view=c.to,
                             to=None, rec=0)

    def settles(self):
        cfg, c, nodes, view = self.cfg, self.c, self.nodes, self.c.view
        for i in bits(lowest(view.members & ~c.settled)):
            if nodes[i].prom <= c.epoch and nodes[i].inc == c.incs[i]:
                done = nodes[:i] + (settle(cfg, nodes[i], c.decided),) + nodes[i + 1:]
                yield self.go_on(f'settles {i}', done, settled=c.settled | 1 << i)
        early = 'resolved-before-serving' in self.off and c.settled
        if c.settled & view.members == view.members or early:
            yield from self.serves()
        if c.views < cfg.views:
            for i in bits(view.members):        # a node is lost during the takeover: without it
                yield from self.forms(c.reached & ~(1 << i), view.count + 1)

    def serves(self):
        """All are settled: what is read from here on may not change."""
        cfg, st, c, nodes, view = self.cfg, self.st, self.c, self.nodes, self.c.view
        torn = c.clean                          # kept there while it settles
        there = mask_of(i for i in bits(view.members) if nodes[i].inc == c.incs[i])
        if not cfg.survives(there) or torn and there != view.members:
            return
        if torn:
            nodes = resync(cfg, nodes, view.members)
        content = [now(nd) if i < cfg.n else None for i, nd in enumerate(nodes)]
        values = read(cfg, content, there)
        hard = st.crashes > cfg.f or st.cuts > 0 or torn
        wrong = judge(st.blocks, values, hard, view.members != cfg.all)
        if wrong:
            yield 'client 2 serves', wrong
            return
        if BAD in values:                       # promised only to be known: the model ends here
            yield 'client 2 serves', st._replace(clients=(NO_CLIENT,), crashes=99, cuts=99,
                                                 copy=PUT_BACK)
            return
        blocks = tuple(Block(v, 0, 1 << v) for v in values)
        served = st.served | sum(1 << v for v in set(values))
        to = view._replace(count=view.count + 1, torn=False) if view.torn else None
        if 'decide-after-view' in self.off:
            to = view
        yield self.go_on('serves', nodes, blocks, served=served, ph='R', to=to, rec=0, clean=True,
                         wrote=False, decided=NOTHING, settled=0)

    # --- A slice-set ------------------------------------------------------------------------------

    def opens(self):
        cfg, st, c = self.cfg, self.st, self.c
        if st.issued == len(cfg.sets) or c.fl or not all(self.reaches(i)
                                                         for i in bits(self.present)):
            return
        s, nodes = st.issued + 1, self.nodes
        log = logged(cfg, [nodes[i] for i in bits(self.present)], s)
        if 'intent' not in self.off:
            for i in bits(self.present):
                nodes = put(nodes, i, bit=1)
        blocks = list(st.blocks)
        for b in cfg.sets[s - 1]:
            wild = ANY if cfg.whole(s) and cfg.policy == 'ppl' and not log else 0
            blocks[b] = blocks[b]._replace(pending=s, hard=blocks[b].hard | wild)
        yield self.go_on(f'opens slice-set {s} over {cfg.sets[s - 1]}', nodes, tuple(blocks), s,
                         s=s, log=log, clean=False, ticked=0,
                         wrote='catch-up-from-loss' in self.off)

    def prepares(self):
        cfg, c, nodes = self.cfg, self.c, self.nodes
        roles = cfg.roles[c.s] & self.present
        for i in bits(roles & ~c.prep if not c.go else 0):
            staged = nodes[i].staged
            if not self.reaches(i) or staged and staged[0] >= c.s or not self.is_sent_deltas(i):
                continue
            content = prepared_content(cfg, c, nodes, i, c.s)
            nd = nodes[i]._replace(staged=(c.s, content, 1))
            if c.log:
                nd = nd._replace(log=nd.log + ((c.s, content, roles),))
            if 'barrier' in self.off:           # stored as soon as it is there
                nd = nd._replace(cache=nd.cache + (content,), staged=(c.s, content, 2))
            yield self.go_on(f'has slice-set {c.s} prepared by {i}',
                             nodes[:i] + (nd,) + nodes[i + 1:], prep=c.prep | 1 << i)

    def is_sent_deltas(self, i):
        """By those who hold what is written: a node that has started again sends nothing."""
        cfg, c = self.cfg, self.c
        if cfg.cells[i] is not None or cfg.whole(c.s):
            return True
        homes = mask_of(cfg.home[b] for b in cfg.sets[c.s - 1])
        # What a missing one held is decoded from all others.
        senders = homes if homes & ~self.present == 0 else self.present
        return all(self.reaches(j) for j in bits(senders))

    def answers(self):
        cfg, st, c = self.cfg, self.st, self.c
        roles = cfg.roles[c.s] & self.present
        enough = roles & ~c.prep == 0
        if 'go-needs-view' in self.off:
            enough = cfg.survives(self.present & ~(roles & ~c.prep)) and c.prep & roles
        if c.go or not enough:
            return
        served = self.later and self.later.ph == 'R'
        # After a loss of power such an answer is one from before, and promised nothing durable.
        soft = not st.cuts and st.crashes <= cfg.f
        if soft and served and not st.served >> c.s & 1:
            yield (f'client {self.k + 1} acknowledges slice-set {c.s}',
                   'I4 a write is acknowledged after a newer client has begun to serve')
            return
        blocks = list(st.blocks)
        for b in cfg.sets[c.s - 1] if not served else ():
            hard = blocks[b].hard | 1 << c.s
            if c.log and not any(b.hard & ANY for b in st.blocks):
                hard = 1 << c.s                 # durable, as what lies under it is
            blocks[b] = Block(c.s, 0, hard)
        yield self.go_on(f'acknowledges slice-set {c.s}: go', blocks=tuple(blocks), go=1)

    def stores(self):
        cfg, c, nodes = self.cfg, self.c, self.nodes
        if not c.go:
            return
        roles = cfg.roles[c.s] & self.present
        for i in bits(roles & ~c.closed):
            sg = nodes[i].staged
            if self.reaches(i) and sg and sg[0] == c.s and sg[2] == 1:
                nd = nodes[i]._replace(cache=nodes[i].cache + (sg[1],), staged=(c.s, sg[1], 2))
                if 'trim-together' in self.off:  # each for itself, when its own store is durable
                    nd = nd._replace(disk=sg[1], cache=(), log=(), trim=c.s)
                yield self.go_on(f'has slice-set {c.s} stored by {i}',
                                 nodes[:i] + (nd,) + nodes[i + 1:], closed=c.closed | 1 << i)
            elif sg and sg[0] == c.s and sg[2] == 2 and 'barrier' in self.off:
                yield self.go_on(f'hears that {i} has stored {c.s}', closed=c.closed | 1 << i)
        left = roles & ~c.closed
        if left == 0 or 'go-needs-view' in self.off and left & c.prep == 0:
            yield self.go_on(f'closes slice-set {c.s}', s=0, prep=0, go=0, closed=0)

    # --- Flush, and what goes after it ------------------------------------------------------------

    def flushes(self):
        """Stores of all of S, in place."""
        c, nodes = self.c, self.nodes
        if c.clean:
            return
        left = self.present & ~c.fl
        for i in bits(lowest(left)):
            if self.reaches(i):
                done = put(nodes, i, disk=now(nodes[i]), cache=())
                yield self.go_on(f'has {i} flushed', done, fl=c.fl | 1 << i)
        if left == 0 or 'flush-waits' in self.off and c.log:
            blocks = self.st.blocks
            if not self.later or self.later.ph != 'R':
                blocks = tuple(Block(b.acked, b.pending, 1 << b.acked) for b in blocks)
            yield self.go_on('answers a flush', blocks=blocks, fl=0, clean=left == 0)

    def moves_counts(self):
        """All of S gets a new event count after the flush, if there is anything to clear or trim.
        One that was moved only in part is not gone on with after the next flush."""
        cfg, c, nodes, members = self.cfg, self.c, self.nodes, self.c.view.members
        due = not c.fl and not c.clean if 'tick-after-flush' in self.off else c.clean
        if not cfg.copies or not due or 'tick-before-clear' in self.off:
            return
        if not any(nodes[i].bit or nodes[i].log for i in bits(self.present)):
            return
        count = c.events if c.ticked else c.events + 1
        for i in bits(lowest(members & ~c.ticked)):
            if self.reaches(i):
                yield self.go_on(f'moves the event count of {i} to {count}',
                                 put(nodes, i, events=count), events=count,
                                 ticked=c.ticked | 1 << i)

    def clears(self):
        """Marks and records go when all is durable in place, everywhere, and all have a count that
        says so."""
        cfg, c, nodes, members = self.cfg, self.c, self.nodes, self.c.view.members
        if cfg.copies and 'tick-before-clear' in self.off:
            yield from self.clears_and_counts()
            return
        if cfg.copies and members & ~c.ticked:
            return
        count = c.events
        if (c.clean or 'clear-after-flush' in self.off) and \
                (members == cfg.all or 'clear-when-whole' in self.off):
            for i in bits(lowest(sum(1 << i for i in bits(members) if nodes[i].bit))):
                if self.reaches(i):
                    cleared = nodes[i].cleared if 'count-before-bits' in self.off else count
                    yield self.go_on(f'clears the bit of {i}',
                                     put(nodes, i, bit=0, cleared=cleared), cleared=count)
            for i in bits(members if 'count-before-bits' in self.off else 0):
                if not nodes[i].bit and nodes[i].cleared < c.cleared and self.reaches(i):
                    yield self.go_on(f'writes what was cleared at {i}',
                                     put(nodes, i, cleared=c.cleared))
        if c.clean:
            for i in bits(self.present):
                if nodes[i].log and self.reaches(i):
                    trimmed = nodes[i].trimmed if 'trim-counted' in self.off else count
                    done = put(nodes, i, log=(), trim=self.st.issued, trimmed=trimmed)
                    yield self.go_on(f'trims the journal of {i}', done)

    def clears_and_counts(self):
        """The rule broken: a member gets the count in the write that clears."""
        c, nodes, members = self.c, self.nodes, self.c.view.members
        marked = any(nodes[i].bit for i in bits(members))
        if not c.clean or members != self.cfg.all or not marked and not c.ticked:
            return
        count = c.events if c.ticked else c.events + 1
        for i in bits(lowest(members & ~c.ticked)):
            if self.reaches(i):
                done = put(nodes, i, bit=0, events=count, cleared=count)
                yield self.go_on(f'moves the count of {i} and clears its bit', done, events=count,
                                 cleared=count, ticked=c.ticked | 1 << i)

    # --- Members come and go ----------------------------------------------------------------------

    def excludes(self):
        c, view = self.c, self.c.view
        for i in bits(view.members):
            rest = view.members & ~(1 << i)
            if self.cfg.survives(rest):
                to = View(c.epoch, view.count + 1, rest, c.incs, view.torn)
                done = dict(to=to, rec=0)
                if 'view-before-ack' in self.off:
                    done = dict(view=to)
                yield self.go_on(f'excludes {i}', fl=0, wrote=False, views=c.views + 1, clean=False,
                                 ticked=0, **done)

    def catches_up(self):
        """It is given what is marked, or all, and takes part from now on; recorded as in sync in a
        step of its own."""
        cfg, c, nodes, members = self.cfg, self.c, self.nodes, self.c.view.members
        if c.s or not all(self.reaches(j) for j in bits(members)):
            return
        for i in bits(cfg.all & ~self.present):
            nd = nodes[i]
            unheard = self.k == 1 and not c.reached >> i & 1 and nd.prom == 0
            if nd.prom > c.epoch or unheard:
                continue
            if self.logs() and 'join-after-trim' not in self.off:
                continue
            marked = any(nodes[j].bit for j in bits(members))
            dirty = marked and (c.wrote or 'catch-up-from-loss' not in self.off)
            dirty = dirty and 'catch-up' not in self.off
            cleared = max(c.cleared, highest_cleared(cfg, nodes, members | 1 << i))
            given = dirty or lacks_more_than_marks_say(cfg, nd, cleared)
            content = [now(x) if j < cfg.n else None for j, x in enumerate(nodes)]
            values = read(cfg, content, members)
            right = values[cfg.cells[i]] if cfg.cells[i] is not None else tuple(values)
            learnt = 0 if 'count-above-all' in self.off else nd.events
            nd = nd._replace(disk=right if given else now(nd), cache=(), staged=None, log=(),
                             prom=c.epoch, bit=int(marked), cleared=cleared)
            yield self.go_on(f'catches {i} up', nodes[:i] + (nd,) + nodes[i + 1:],
                             join=c.join | 1 << i, incs=c.incs[:i] + (nd.inc,) + c.incs[i + 1:],
                             fl=0, views=c.views + 1, reached=c.reached | 1 << i,
                             events=max(c.events, learnt), cleared=cleared)

    def takes_in(self):
        c, view = self.c, self.c.view
        for i in bits(c.join):
            trimmed = not self.logs() or 'join-after-trim' in self.off
            if not c.s and self.reaches(i) and trimmed:
                # Its superblock has the count before it counts as in sync.
                count = self.nodes[i].events if 'count-before-view' in self.off else c.events
                to = View(c.epoch, view.count + 1, view.members | 1 << i, c.incs, view.torn)
                yield self.go_on(f'takes {i} in', put(self.nodes, i, events=count),
                                 join=c.join & ~(1 << i), to=to, rec=0, ticked=0)
            yield self.go_on(f'gives joining {i} up', join=c.join & ~(1 << i), fl=0)
