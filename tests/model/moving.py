"""Steps of a move of all data between two arrays. See moved.py."""
from itertools import product

from moved import (BEGIN, MEMBERS, NAMES, NEW, OLD, VOTES, APART, Block, Super, change, edit, grant,
                   has_heard, has_told, knows, look, serves, side_of, sides, taken_over, tell,
                   volumes)
from takeover import bits, lowest, size


# --- Clients and nodes come and go ----------------------------------------------------------------

def steps(cfg, st):
    """All (label, next state or broken promise)."""
    yield from power_fails(cfg, st)
    yield from takes_over(cfg, st)
    c = st.client
    if c is None:
        return
    yield 'the client dies', st._replace(client=None)
    if c.flying:
        yield 'the client dies, its write is stored', store(st)._replace(client=None)
    yield from hears(cfg, st)
    if cfg.losses:
        yield from loses(cfg, st)
        yield from comes_back(st)
    if serves(c):
        yield from writes(cfg, st)
        yield from flushes(cfg, st)
        yield from makes(cfg, st)
        yield from removes(cfg, st)
        yield from goes_on(cfg, st)


def power_fails(cfg, st):
    if st.cuts == cfg.cuts:
        return
    blocks = tuple(Block(block.hard, block.hard) for block in st.blocks)
    left = [list(product(*map(set, zip(array.stored, array.durable)))) for array in st.arrays]
    for contents in product(*left):
        arrays = tuple(array._replace(stored=content, durable=content)
                       for array, content in zip(st.arrays, contents))
        yield f'the power fails, leaving {contents}', st._replace(
            arrays=arrays, client=None, blocks=blocks, cuts=st.cuts + 1)


def takes_over(cfg, st):
    for reached in cfg.reached if st.clients < cfg.clients else ():
        after = taken_over(cfg, st, reached) if st.client is None else None
        if after:
            yield f'a client takes over with {reached:03b}', after
        after = grant(cfg, st, st.rival, reached) if st.rival else None
        if after:
            yield f'the rival takes over with {reached:03b}', after._replace(rival=None)
    found = look(cfg, st, 7) if cfg.rival and not st.rival else None
    if found:
        yield 'a rival looks', st._replace(rival=found)


def hears(cfg, st):
    """The superblock of a member is written."""
    for side in sides(st.client):
        told, array = st.client.told[side], st.arrays[side]
        for i in bits(told.pend):
            left = told._replace(pend=told.pend & ~(1 << i))
            if left.due and not left.pend:
                left = tell(left, array.view)
            left = left._replace(loss=left.loss and not knows(left))
            after = st._replace(
                arrays=edit(st.arrays, side, supers=change(array.supers, i, told.latest)),
                client=st.client._replace(told=change(st.client.told, side, left)))
            yield f'node {i}: {told.latest.note} in the {NAMES[side]} array', has_heard(cfg, after)


def loses(cfg, st):
    """A node that the arrays can do without. That is on record at once."""
    for i in range(3 if st.losses < cfg.losses else 0):
        arrays, told = st.arrays, st.client.told
        for side in sides(st.client):
            view = arrays[side].view & ~(1 << i)
            if view != arrays[side].view:
                left = told[side]._replace(pend=told[side].pend & ~(1 << i))
                told = change(told, side, tell(left, view, loss=True))
                arrays = edit(arrays, side, view=view)
        if arrays != st.arrays and all(size(arrays[side].view) >= VOTES[side]
                                       for side in sides(st.client)):
            yield f'node {i} is lost', has_heard(cfg, st._replace(
                arrays=arrays, client=st.client._replace(told=told), losses=st.losses + 1))


def comes_back(st):
    """A node is given what it missed; then its superblock says so, and then the view."""
    for side in sides(st.client):
        array, told = st.arrays[side], st.client.told[side]
        for i in bits(volumes(array) & ~array.view if knows(told) else 0):
            events = max(told.latest.events, array.supers[i].events)
            view = array.view | 1 << i
            after = tell(told._replace(latest=told.latest._replace(events=events)), view)
            after = after._replace(pend=after.pend & ~(1 << i))
            supers = change(array.supers, i, after.latest)
            yield f'node {i} is back in the {NAMES[side]} array', st._replace(
                arrays=edit(st.arrays, side, view=view, supers=supers),
                client=st.client._replace(told=change(st.client.told, side, after)))


# --- Requests -------------------------------------------------------------------------------------

def writes(cfg, st):
    c = st.client
    if c.flying:
        unit, write, side = c.flying
        if not c.told[side].loss:
            block = Block(1 << write, st.blocks[unit].hard)
            yield f'write {write} is answered', store(st)._replace(
                blocks=change(st.blocks, unit, block), client=c._replace(flying=None))
    elif st.issued < len(cfg.sets):
        unit, write = cfg.sets[st.issued], st.issued + 1
        if unit == c.window and 'move-window' not in cfg.off:
            return
        side, block = side_of(c, unit), st.blocks[unit]
        block = Block(block.may | 1 << write, block.hard | 1 << write)
        yield f'write {write} goes to unit {unit} of the {NAMES[side]} array', st._replace(
            client=c._replace(flying=(unit, write, side)), issued=write,
            blocks=change(st.blocks, unit, block))


def store(st):
    unit, write, side = st.client.flying
    stored = change(st.arrays[side].stored, unit, write)
    return st._replace(arrays=edit(st.arrays, side, stored=stored))


def flushes(cfg, st):
    c, arrays = st.client, st.arrays
    flushed = sides(c) if 'flush-both' not in cfg.off else sides(c)[-1:]
    for side in flushed:
        arrays = edit(arrays, side, durable=arrays[side].stored)
    blocks = tuple(Block(block.may, block.may) for block in st.blocks)
    after = st._replace(arrays=arrays, blocks=blocks)
    if after != st and not any(c.told[side].loss for side in flushed):
        yield 'a flush is answered', after


# --- The move -------------------------------------------------------------------------------------

def goes_on(cfg, st):
    """What is done while no window is open."""
    c = st.client
    if c.step != 'closed' or not knows(c.told[NEW]):
        return
    if cfg.undo and not c.back:
        after = has_told(cfg, st, NEW, (c.front, True), c._replace(step='turning'))
        if 'turn-told' in cfg.off:
            client = after.client._replace(step='closed', back=True)
            after = after._replace(client=client, turned=True)
        yield 'data are to go back', has_heard(cfg, after)
    window = c.front - c.back
    if c.flying and c.flying[0] == window and 'drained' not in cfg.off:
        return
    source, target = (NEW, OLD) if c.back else (OLD, NEW)
    stored = change(st.arrays[target].stored, window, st.arrays[source].stored[window])
    durable = stored if 'move-flush' not in cfg.off else st.arrays[target].durable
    front = window if c.back else window + 1
    after = c._replace(step='telling', window=window)
    after = after if 'move-position' not in cfg.off else c._replace(front=front)
    st = st._replace(arrays=edit(st.arrays, target, stored=stored, durable=durable))
    yield f'the window {window} is copied and flushed', has_heard(
        cfg, has_told(cfg, st, NEW, (front, c.back), after))


def makes(cfg, st):
    """The volumes of the new array are made, one after the other."""
    c, (old, new) = st.client, st.arrays
    made = size(volumes(new))
    if c.side == OLD and cfg.begin and old.view == MEMBERS[OLD] and not new.view:
        supers = change(new.supers, made, Super(0, BEGIN, MEMBERS[NEW]))
        new = new._replace(supers=supers, view=MEMBERS[NEW] if made == 2 else 0)
        yield f'volume {made} is made', st._replace(arrays=(old, new))


def removes(cfg, st):
    """The volumes that are not needed are removed where their nodes are there, the witness forgets
    the array."""
    c = st.client
    told = c.told[c.side] if c.gone is not None else None
    if not told or told.note != APART or not knows(told) and 'removed-when-told' not in cfg.off:
        return
    array = st.arrays[c.gone]
    away = ~array.view | MEMBERS[c.side] & ~st.arrays[c.side].view
    there = volumes(array) & ~away
    for i in bits(lowest(there)):
        yield f'volume {i} of the {NAMES[c.gone]} array is removed', st._replace(
            arrays=edit(st.arrays, c.gone, supers=change(array.supers, i, None)))
    if not there and (not volumes(array) or 'forgotten-when-gone' in cfg.off):
        yield f'the witness forgets the {NAMES[c.gone]} array', st._replace(
            arrays=edit(st.arrays, c.gone, forgot=True))
