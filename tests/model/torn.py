"""What becomes of a slice whose sums may not fit, and of what nobody could tell a member.

A model of its own, coarser than the one in steps.py, as it has to go on for longer: a loss of power
under whole stripes, a start without members, a write of everything and a flush, members that return
or are replaced, another loss meanwhile, another client. Here a slice-set is opened, stored by all,
and answered; messages, grants and the votes on views are left to steps.py, and so is what a
takeover makes of slice-sets that somebody lacks: one that was stored goes. Exclusions, takeovers
and views are one step each. A slice-set that is logged is durable everywhere or nowhere.

One slice. T: its sums may not fit. U: the cells in their members' logs of bad blocks. What is read
is judged in every state with a client that serves, and each client may die at any moment, so these
are all states that a next client finds, with any members that are enough. A read that fails is
excused by a loss of power with the slice in doubt, until a later write of that block is answered;
if power is lost once more, until one is flushed.
"""
from collections import namedtuple

from takeover import BAD, Config, bits, mask_of, read

# unknown: the cell is in its member's log of bad blocks, durably. cache: later stores.
Cell = namedtuple('Cell', 'disk cache unknown')
# members: S; kept: those of them that have run ever since it was recorded.
View = namedtuple('View', 'members kept torn')
# ph: F has formed, does not serve yet; R serves. doubt: the slice is in T. own: members whose data
# nobody has written since they were in sync when the power was lost. s: the slice-set in progress;
# stored: by all. join: the member that is being taken in. mended: cells that the resync has formed
# anew; a bit above all members says that it has given up.
Client = namedtuple('Client', 'ph doubt own s stored join mended')
# may: mask of what may be read; hard: the same after a loss of power. excused: 0 no, 1 a read may
# fail, 2 only after another loss of power: it was written since.
Block = namedtuple('Block', 'may hard excused')
# active: superblocks say that the array is in use.
State = namedtuple('State', 'cells view marked active client blocks issued cuts losses')
# Without all of these: what arrays over nodes did before.
TORN_ROWS = {'unknown-recorded', 'unknown-read', 'whole-slice-fits', 'rewritten-known',
             'sums-noted'}
FRESH = Client('R', False, 0, 0, False, 0, 0)


class Torn(Config):
    """losses: members that fail under a client. busy: other slices keep the array active. room: in
    logs of bad blocks."""

    def __init__(self, policy='ppl', cuts=1, losses=1, busy=False, room=True, **rest):
        super().__init__(policy=policy, cuts=cuts, **rest)
        self.losses_allowed, self.busy, self.room = losses, busy, room
        self.sums = mask_of(self.parities)
        if 'torn-rows' in self.off:
            self.off |= TORN_ROWS

    def logs(self, s):
        """Is this slice-set written to the journals?"""
        return self.policy == 'ppl' and not self.whole(s)


def start(cfg):
    cells = tuple(Cell(0 if c is not None else (0,) * cfg.data, (), False) for c in cfg.cells)
    return State(cells, View(cfg.all, cfg.all, False), False, False, FRESH,
                 (Block(1, 1, 0),) * cfg.data, 0, 0, 0)


def now(cell):
    return cell.cache[-1] if cell.cache else cell.disk


def durable(cell):
    return cell._replace(disk=now(cell), cache=())


def change(cells, i, cell):
    return cells[:i] + (cell,) + cells[i + 1:]


def known(cfg, cells, members):
    """Members whose cell somebody could tell them."""
    if 'unknown-read' in cfg.off:
        return members
    return mask_of(i for i in bits(members) if not cells[i].unknown)


def values_of(cfg, cells, members, doubt):
    """The data blocks; None where it cannot be known."""
    there = known(cfg, cells, members)
    contents = [now(cell) for cell in cells]
    values = None if doubt else read(cfg, contents, there)
    if values is None:
        values = [contents[cfg.home[b]] if there >> cfg.home[b] & 1 else None
                  for b in range(cfg.data)]
    return values


def right(cfg, values, i):
    """What the cell of a member is, or None where it cannot be known."""
    if cfg.cells[i] is not None:
        return values[cfg.cells[i]]
    return None if None in values else tuple(values)


# --- What has to hold -----------------------------------------------------------------------------

def judge(cfg, st):
    """The invariant that is broken with a client that serves, if any."""
    c = st.client
    if c is None or c.ph == 'F':
        return None
    values = values_of(cfg, st.cells, st.view.members, c.doubt)
    for b, (block, value) in enumerate(zip(st.blocks, values)):
        if value is None:
            if (c.own & st.view.members) >> cfg.home[b] & 1:
                return f'I6 block {b} cannot be read, and its member is back'
            if block.excused != 1:
                return f'I1 block {b} cannot be read, and was written since the loss of power'
        elif value == BAD:
            return f'I3 block {b} is rubbish, neither old nor new'
        elif not block.may >> value & 1:
            return f'I1 block {b} reads {value}, and was written since'
    if c.mended >> cfg.n and st.view.members == cfg.all and None not in values and not c.s:
        return 'I6 all are back and all can be read, and no resync is tried again'
    if c.s or c.doubt:
        return None
    for i in bits(known(cfg, st.cells, st.view.members) & cfg.sums):
        if any(value not in (None, held) for value, held in zip(values, now(st.cells[i]))):
            return f'I7 member {i} is in sync and does not fit, is not unknown, nor in doubt'
    return None


# --- Clients come and go --------------------------------------------------------------------------

def steps(cfg, st):
    """All (label, next state)."""
    yield from power_fails(cfg, st)
    c = st.client
    if c is None:
        yield from takes_over(cfg, st)
        return
    yield 'the client dies', st._replace(client=None)
    if c.ph == 'F':
        yield from notes_sums(cfg, st)
        return
    yield from excludes(cfg, st)
    if c.s:
        yield from stores(cfg, st)
        yield from answers(cfg, st)
        return
    yield from flushes(cfg, st)
    if any(st.cells[i].unknown for i in bits(c.mended & st.view.members)):
        yield from is_mended(cfg, st)           # the area is locked
        return
    yield from opens(cfg, st)
    yield from rests(cfg, st)
    yield from mends(cfg, st)
    yield from ends_doubt(cfg, st)
    yield from catches_up(cfg, st)
    yield from takes_in(cfg, st)


def power_fails(cfg, st):
    """Everywhere; each member keeps any of its stores."""
    if st.cuts == cfg.cuts:
        return
    excused = st.marked and st.active
    blocks = tuple(Block(b.hard, b.hard, int(excused or b.excused > 0)) for b in st.blocks)
    left = [()]
    for cell in st.cells:
        kept = dict.fromkeys((cell.disk,) + cell.cache)
        left = [cells + (Cell(disk, (), cell.unknown),) for cells in left for disk in kept]
    for cells in left:
        yield f'the power fails, leaving {[cell.disk for cell in cells]}', st._replace(
            cells=cells, view=st.view._replace(kept=0), client=None, blocks=blocks,
            cuts=st.cuts + 1)


def takes_over(cfg, st):
    """A client takes over with any members that are enough, and has them flush. If too few have run
    ever since the view, or that is torn, what is marked is in doubt."""
    view = st.view
    for reached in range(1, cfg.all + 1):
        soft = not view.torn and cfg.survives(view.kept & reached)
        members = view.members & reached & (view.kept if soft else cfg.all)
        if not cfg.survives(members):
            continue
        doubt = not soft and st.marked and (st.active or view.torn)
        if doubt and members != cfg.all and cfg.policy == 'bitmap':
            continue                            # dirty and degraded
        cells = tuple(durable(cell) if members >> i & 1 else cell
                      for i, cell in enumerate(st.cells))
        lost = mask_of(cfg.home[b] for b in range(cfg.data)
                       if not known(cfg, cells, members) >> cfg.home[b] & 1)
        notes = doubt and cfg.room and 'sums-noted' not in cfg.off
        notes = notes and (lost or 'noted-always' not in cfg.off)
        blocks = st.blocks
        if doubt and not cfg.room:              # nobody knows any more what was formed anew
            blocks = tuple(b._replace(excused=1) for b in blocks)
        own = known(cfg, cells, view.members & ~cfg.sums) if notes else 0
        done = st._replace(cells=cells, view=View(members, members, doubt), blocks=blocks,
                           client=FRESH._replace(ph='F', doubt=doubt, own=own))
        label = f'a client takes over with {members:0{cfg.n}b}{", hard" * (not soft)}'
        yield label, done if notes else serves(cfg, done)


def notes_sums(cfg, st):
    """Before anything is served, the sums of a slice in doubt are noted as unknown, durably. It is
    in doubt no more then, and the view is not torn because of it."""
    left = [i for i in bits(st.view.members)
            if cfg.cells[i] is None and not st.cells[i].unknown]
    for i in left[:1]:
        yield f'notes the sums of {i} as unknown', st._replace(
            cells=change(st.cells, i, st.cells[i]._replace(unknown=True)))
    if not left or 'noted-before-serving' in cfg.off:
        yield 'serves', serves(cfg, st._replace(
            view=st.view._replace(torn=False), client=st.client._replace(doubt=False)))


def serves(cfg, st):
    return is_read(cfg, st._replace(client=st.client._replace(ph='R')))


def is_read(cfg, st):
    """What is read from here on may not change. All of it is durable."""
    values = values_of(cfg, st.cells, st.view.members, st.client.doubt)
    blocks = []
    for block, value in zip(st.blocks, values):
        if value not in (None, BAD) and block.may >> value & 1:
            block = block._replace(may=1 << value, hard=1 << value)
        blocks.append(block)
    return st._replace(blocks=tuple(blocks))


# --- A slice-set ----------------------------------------------------------------------------------

def opens(cfg, st):
    """A slice-set fails if it needs what cannot be known."""
    if st.issued == len(cfg.sets):
        return
    s, c = st.issued + 1, st.client
    blocks = list(st.blocks)
    values = values_of(cfg, st.cells, st.view.members, c.doubt)
    for b in cfg.sets[s - 1]:
        values[b] = s
        blocks[b] = blocks[b]._replace(may=blocks[b].may | 1 << s, hard=blocks[b].hard | 1 << s)
    if None in values:
        yield f'slice-set {s} over {cfg.sets[s - 1]} fails', st._replace(issued=s)
        return
    yield f'opens slice-set {s} over {cfg.sets[s - 1]}', st._replace(
        marked=True, active=True, client=c._replace(s=s), blocks=tuple(blocks), issued=s)


def stores(cfg, st):
    """All participants hold it: sums are formed of all data, so they fit from now on."""
    c, cells = st.client, st.cells
    if c.stored:
        return
    values = values_of(cfg, cells, st.view.members, c.doubt)
    for b in cfg.sets[c.s - 1]:
        values[b] = c.s
    if None in values:                          # it has lost a member meanwhile
        yield f'slice-set {c.s} fails', st._replace(client=c._replace(s=0))
        return
    touched = mask_of(cfg.home[b] for b in cfg.sets[c.s - 1])
    for i in bits((st.view.members | c.join) & (touched | cfg.sums)):
        cell = cells[i]
        if cfg.logs(c.s):
            cell = Cell(right(cfg, values, i), (), cell.unknown)
        else:
            cell = cell._replace(cache=cell.cache + (right(cfg, values, i),))
        if 'cleared-when-durable' in cfg.off:
            cell = cell._replace(unknown=False)
        cells = change(cells, i, cell)
    doubt = c.doubt and 'whole-slice-fits' in cfg.off
    own = c.own if 'own-unwritten' in cfg.off else c.own & ~touched
    yield f'has slice-set {c.s} stored', st._replace(
        cells=cells, client=c._replace(stored=True, own=own, doubt=doubt))


def answers(cfg, st):
    """When what it makes known is durable, and no log of bad blocks has it any more."""
    c = st.client
    if not c.stored:
        return
    touched = mask_of(cfg.home[b] for b in cfg.sets[c.s - 1])
    roles = (st.view.members | c.join) & (touched | cfg.sums)
    unknown = [i for i in bits(roles) if st.cells[i].unknown]
    unknown = unknown if 'rewritten-known' not in cfg.off else []
    for i in unknown[:1]:
        yield from is_known(st, i)
    if unknown and 'known-before-answer' not in cfg.off:
        return
    blocks = list(st.blocks)
    for b in cfg.sets[c.s - 1]:
        clear = cfg.logs(c.s) and not any(cell.cache for cell in st.cells)
        hard = 1 << c.s if clear else blocks[b].hard
        blocks[b] = Block(1 << c.s, hard, 2 if blocks[b].excused and not clear else 0)
    yield f'answers slice-set {c.s}', st._replace(
        blocks=tuple(blocks), client=c._replace(s=0, stored=False))


def is_known(st, i):
    """What makes a cell known is durable first."""
    cell = st.cells[i]
    if cell.cache:
        yield f'has {i} durable', st._replace(cells=change(st.cells, i, durable(cell)))
    else:
        yield f'takes the cell of {i} out of its log', st._replace(
            cells=change(st.cells, i, cell._replace(unknown=False)))


def flushes(cfg, st):
    present = st.view.members | st.client.join
    if not any(st.cells[i].cache for i in bits(present)):
        return
    cells = tuple(durable(cell) if present >> i & 1 else cell for i, cell in enumerate(st.cells))
    blocks = tuple(Block(b.may, b.may, b.excused & 1) for b in st.blocks)
    yield 'answers a flush', st._replace(cells=cells, blocks=blocks)


def rests(cfg, st):
    """All is in place: superblocks say so; and marks go, if nobody is missing."""
    c = st.client
    if cfg.busy or any(st.cells[i].cache for i in bits(st.view.members | c.join)):
        return
    marked = st.marked and (st.view.members != cfg.all or c.doubt or st.view.torn)
    if st.active or marked != st.marked:
        yield 'rests', st._replace(active=False, marked=marked)


# --- Sums are formed anew -------------------------------------------------------------------------

def mends(cfg, st):
    """A resync: what is unknown and can be told, and sums in doubt if all data are there, is formed
    anew, durably. Only then does it leave the log."""
    c = st.client
    if c.mended >> cfg.n:
        return
    values = values_of(cfg, st.cells, st.view.members, c.doubt)
    for i in bits(st.view.members & ~c.mended):
        cell, content = st.cells[i], right(cfg, values, i)
        if cell.unknown and content is None and 'resync-again' in cfg.off:
            yield 'gives the resync up', st._replace(
                client=c._replace(mended=c.mended | 1 << cfg.n))
        if cell.unknown and content is None and 'unknown-cleared' in cfg.off:
            yield f'takes the cell of {i} out of its log', st._replace(
                cells=change(st.cells, i, cell._replace(unknown=False)))
        if (cell.unknown or c.doubt and cfg.cells[i] is None) and content is not None:
            if 'mended-when-durable' in cfg.off:
                cell = Cell(cell.disk, cell.cache + (content,), False)
            else:
                cell = Cell(content, (), cell.unknown)
            yield f'has the cell of {i} formed anew', st._replace(
                cells=change(st.cells, i, cell), client=c._replace(mended=c.mended | 1 << i))
            return


def is_mended(cfg, st):
    for i in bits(st.client.mended & st.view.members):
        if st.cells[i].unknown:
            yield from is_known(st, i)
            return


def ends_doubt(cfg, st):
    """All sums there are have been formed anew; then a view says so."""
    c, view = st.client, st.view
    sums = view.members & cfg.sums
    if c.doubt and sums & ~c.mended == 0:
        yield 'ends the resync', st._replace(client=c._replace(doubt=False))
    if view.torn and not c.doubt and not cfg.busy:
        blocks = st.blocks
        if known(cfg, st.cells, view.members) == cfg.all:
            blocks = tuple(b._replace(excused=0) for b in blocks)
        yield 'records a view that is not torn', st._replace(
            view=view._replace(torn=False), blocks=blocks)


# --- Members come and go --------------------------------------------------------------------------

def excludes(cfg, st):
    if st.losses == cfg.losses_allowed:
        return
    view, c = st.view, st.client
    for i in bits(view.members):
        rest = view.members & ~(1 << i)
        if cfg.survives(rest):
            yield f'excludes {i}', st._replace(view=View(rest, view.kept & rest, view.torn),
                                               losses=st.losses + 1)
    if c.join:
        yield 'gives who joins up', st._replace(client=c._replace(join=0), losses=st.losses + 1)


def catches_up(cfg, st):
    """It is told what can be known; the rest goes into its log, durably, before it is in sync."""
    c = st.client
    if c.join:
        return
    values = values_of(cfg, st.cells, st.view.members, c.doubt)
    for i in bits(cfg.all & ~st.view.members):
        content = right(cfg, values, i)
        for cell, what in ((st.cells[i], f'catches {i} up'),
                           (Cell(BAD, (), False), f'rebuilds a new {i}')):
            own = c.own >> i & 1 or 'own-of-then' in cfg.off
            own = own and cell.disk != BAD and not cell.unknown
            if content is not None:
                cell = Cell(content, (), False)
            elif not cfg.room and not own:
                continue                        # it waits until it can be told
            elif not own or 'own-kept' in cfg.off:
                cell = durable(cell)._replace(unknown='unknown-recorded' not in cfg.off)
            yield what, st._replace(cells=change(st.cells, i, cell), client=c._replace(
                join=1 << i, own=c.own & ~(0 if own else 1 << i), mended=c.mended & ~(1 << i)))


def takes_in(cfg, st):
    """A view has who joins in S. If it has kept its own, sums stay unknown until they are formed
    anew; in doubt again, the slice would stay so for a next client, with what is written until
    then."""
    c, view = st.client, st.view
    if not c.join:
        return
    values = values_of(cfg, st.cells, view.members, c.doubt)
    kept = c.own & c.join and right(cfg, values, c.join.bit_length() - 1) is None
    doubt = c.doubt or bool(kept) and 'own-known' in cfg.off
    st = st._replace(view=View(view.members | c.join, view.kept | c.join, view.torn or doubt),
                     client=c._replace(join=0, doubt=doubt,
                                       mended=c.mended if doubt == c.doubt else 0))
    yield f'takes {c.join:0{cfg.n}b} in', is_read(cfg, st) if kept else st
