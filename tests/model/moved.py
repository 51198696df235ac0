"""A move of all data from an array to another one, over more nodes, while requests go on.

The old array is a mirror of two nodes with a witness; the new one has a third node. Within each the
rules of steps.py hold: members in sync hold the same; a loss is on record before what it misses is
answered; who gets the array hears of the newest view, of one member in sync at least, and has the
votes: those of the witness and of one node of the old array, or two of the new one. Here is what
lies between the two: who is told what, in which order, and what the next client makes of it.

The data are units; a window is one of them, and the front is one, too. What is stored is durable
after a flush; a loss of power everywhere takes any of the rest. Superblocks are durable, and each
member's is written by itself: the client may die after any of them, and the next one finds any
nodes. Nodes are lost at any moment, and come back with the superblock that they had. A rival is a
client of another machine, which has looked at the volumes, and gets the votes later.

    M1 what was answered is read; after a loss of power what was flushed
    M2 there is always an array that starts, where enough nodes of both are
    M3 nobody serves what only a node has that was left behind
    M4 data that go back end in the old array

The steps are in moving.py. Left out: codes, sizes, names and UUIDs (each attempt has its own), a
second move, requests over the front, media errors, windows that are given up, requests that wait
for nodes.
"""
from collections import namedtuple

from takeover import bits, size

OLD, NEW = SIDES = 0, 1
NAMES = ('old', 'new')
# Notes in superblocks. Of the new array, while data move: (front, back).
APART, SOURCE, BEGIN, BACK = 'apart', 'source', (0, False), (0, True)
MEMBERS = (0b011, 0b111)
VOTES = (1, 2)                  # nodes that have to be there
# A superblock. roles: who is active by it.
Super = namedtuple('Super', 'events note roles')
# supers: by node, None without a volume. view: the newest, none before the array is made. forgot:
# the witness has.
Array = namedtuple('Array', 'supers view stored durable forgot')
# What a client has members told: latest, which those in pend have not heard of yet; due: then once
# more, with this note. loss: it tells of one.
Told = namedtuple('Told', 'latest note pend due loss')
# step: as in moving/stage.rs; alone: one array is served, that of this side. gone: the one that is
# removed. window: what writes wait for. flying: the write under way, (unit, write, side).
Client = namedtuple('Client', 'step side gone front back window told flying')
# may: mask of what may be read; hard: the same after a loss of power.
Block = namedtuple('Block', 'may hard')
# rival: what it has found. turned: it was answered that data go back.
State = namedtuple('State', 'arrays client rival blocks turned issued clients cuts losses')


class Moved:
    """sets: the unit of each write. begin: the new array is not made yet. fewer: who takes over may
    find fewer nodes."""

    def __init__(self, name, units=1, sets=(0,), clients=2, cuts=0, losses=0, begin=False,
                 rival=False, undo=False, fewer=False, off=()):
        self.name, self.units, self.sets, self.clients = name, units, sets, clients
        self.cuts, self.losses, self.begin, self.rival, self.undo = cuts, losses, begin, rival, undo
        self.reached = range(1, 8) if fewer else (7,)
        self.off, self.memo = frozenset(off), {}


def start(cfg):
    zero, old = (0,) * cfg.units, Super(0, APART, MEMBERS[OLD])
    new = None if cfg.begin else Super(0, BEGIN, MEMBERS[NEW])
    arrays = (Array((old, old, None), MEMBERS[OLD], zero, zero, False),
              Array((new,) * 3, MEMBERS[NEW] if new else 0, zero, zero, False))
    client = alone(OLD, None, (Told(old, APART, 0, False, False), None)) if cfg.begin else None
    return State(arrays, client, None, (Block(1, 1),) * cfg.units, False, 0, 0, 0, 0)


def alone(side, gone, told, flying=None):
    return Client('alone', side, gone, 0, False, None, change(told, 1 - side, None), flying)


def change(items, i, value):
    return items[:i] + (value,) + items[i + 1:]


def edit(arrays, side, **values):
    return change(arrays, side, arrays[side]._replace(**values))


def sides(c):
    return (c.side,) if c.step == 'alone' else SIDES


def side_of(c, unit):
    """The array that requests for this unit go to."""
    return c.side if c.step == 'alone' else NEW if unit < c.front else OLD


def serves(c):
    return c is not None and c.step != 'confirming'


def knows(told):
    """All members have heard of everything."""
    return not told.pend and not told.due


def volumes(array):
    return sum(1 << i for i, found in enumerate(array.supers) if found)


# --- What has to hold -----------------------------------------------------------------------------

def judge(cfg, st):
    """The promise that is broken, if any."""
    c = st.client
    if serves(c):
        for unit, block in enumerate(st.blocks):
            side = side_of(c, unit)
            value = st.arrays[side].stored[unit]
            if not block.may >> value & 1:
                return f'M1 unit {unit} reads {value} from the {NAMES[side]} array'
        if st.turned and c.side == NEW:
            return 'M4 data were to go back, and the new array stands alone'
    if c is None and st.arrays not in cfg.memo:
        wrong = (starts(cfg, st, reached) for reached in range(8))
        cfg.memo[st.arrays] = next(filter(None, wrong), None)
    return None if c else cfg.memo[st.arrays]


def starts(cfg, st, reached):
    """The promise that is broken for who finds these nodes, if any."""
    after = taken_over(cfg, st, reached)
    if after:
        return after if isinstance(after, str) else None
    for side, array in enumerate(st.arrays):
        there = volumes(array)
        if array.view & there and not (array.view & there & reached
                                       and size(there & reached) >= VOTES[side]):
            return None                         # too few, and it is not removed
    return f'M2 no array starts with {reached:03b}'


# --- A client takes over --------------------------------------------------------------------------

def look(cfg, st, reached):
    """What is to be served, by the newest superblocks: (side or None for both, gone, the notes);
    None: nothing. As assemble/nodes/pair.rs has it."""
    there = [volumes(array) & reached for array in st.arrays]
    old, new = notes = tuple(newest(cfg, array, nodes).note if nodes else None
                             for array, nodes in zip(st.arrays, there))
    if new == APART and (old is None or 'apart-wins' not in cfg.off):
        return NEW, OLD if old else None, notes
    if None in notes:                           # the other one was not found
        return (OLD, None, notes) if old == APART else None
    if old == SOURCE:
        return None, None, notes
    if new == BEGIN or new == BACK and 'back-ends' in cfg.off:
        whole = there[NEW] == MEMBERS[NEW] or 'begun-whole' in cfg.off
        return None if whole else OLD, None, notes
    if new == BACK or 'stale-target' not in cfg.off:
        return OLD, NEW, notes
    return None


def newest(cfg, array, nodes):
    """Of superblocks that are equally new that of a member which no other one goes on without."""
    def rank(i):
        events = array.supers[i].events
        equal = [j for j in bits(nodes) if array.supers[j].events == events]
        known = all(array.supers[j].roles >> i & 1 for j in equal)
        return events, known or 'known-first' in cfg.off, -i
    return array.supers[max(bits(nodes), key=rank)]


def taken_over(cfg, st, reached):
    found = look(cfg, st, reached)
    return found and grant(cfg, st, found, reached)


def grant(cfg, st, found, reached):
    """A client that has found this gets it from these nodes. The next state, a promise that is
    broken, or None: it does not."""
    side, gone, seen = found
    arrays, told = st.arrays, (None, None)
    wanted = SIDES if side is None else (side,)
    for one in wanted:
        array, there = arrays[one], volumes(arrays[one]) & reached
        view = array.view & there
        if size(there) < VOTES[one] or not view and not array.forgot:
            return None
        latest = newest(cfg, array, there)
        behind = sum(1 << i for i in bits(view) if array.supers[i].events < latest.events)
        asked = Told(latest, latest.note, behind, False, False)
        if view != latest.roles:
            asked = tell(asked._replace(pend=0), view, loss=True)
        arrays, told = edit(arrays, one, view=view), change(told, one, asked)
    if not all(arrays[one].view for one in wanted):
        return 'M3 an array is served by a node that was left behind'
    notes = [asked and asked.note for asked in told]
    if side is None:
        client = moves(cfg, told, notes if 'front-by-grant' not in cfg.off else seen)
    else:
        client = alone(side, gone, told)
        if notes[side] != APART and 'alone-by-grant' not in cfg.off:
            return None
    if client is None:
        return None
    st = st._replace(arrays=arrays, client=client, clients=st.clients + 1)
    if client.step == 'marking':
        st = has_told(cfg, st, OLD, SOURCE, client)
    return has_heard(cfg, is_read(st) if serves(client) else st)


def moves(cfg, told, notes):
    """What goes on with both arrays, by these notes."""
    old, new = notes
    client = Client('confirming', None, None, 0, False, None, told, None)
    if old == SOURCE:
        if new == APART:
            return alone(NEW, OLD, told)
        return client._replace(front=new[0], back=new[1])
    if new == BACK and 'back-ends' not in cfg.off:
        return alone(OLD, NEW, told)
    return client._replace(step='marking') if new in (BEGIN, BACK) else None


def is_read(st):
    """What is read from here on may not change."""
    blocks = []
    for unit, block in enumerate(st.blocks):
        bit = 1 << st.arrays[side_of(st.client, unit)].stored[unit]
        blocks.append(Block(bit, block.hard | bit) if block.may & bit else block)
    return st._replace(blocks=tuple(blocks))


# --- Who is told ----------------------------------------------------------------------------------

def tell(told, view, note=None, loss=False):
    """Has all in sync told, after what they are being told already."""
    told = told._replace(note=note or told.note, loss=told.loss or loss, due=bool(told.pend))
    if told.due:
        return told
    return told._replace(latest=Super(told.latest.events + 1, told.note, view), pend=view)


def has_told(cfg, st, side, note, client):
    told = tell(client.told[side], st.arrays[side].view, note)
    return st._replace(client=client._replace(told=change(client.told, side, told)))


def has_heard(cfg, st):
    """Takes the steps that follow once all members have heard."""
    c = st.client
    if c.step == 'alone':
        return st
    old, new = map(knows, c.told)
    if c.step == 'confirming' and (old or 'source-confirmed' in cfg.off) and (
            new or 'front-confirmed' in cfg.off):
        st = is_read(st._replace(client=c._replace(step='closed')))
    elif c.step == 'marking' and (old or 'source-marked' in cfg.off):
        st = st._replace(client=c._replace(step='closed'))
    elif c.step == 'telling' and new:
        st = st._replace(client=c._replace(step='closed', front=c.told[NEW].note[0], window=None))
    elif c.step == 'turning' and new:
        st = st._replace(client=c._replace(step='closed', back=True), turned=True)
    elif c.step == 'ending' and (old if c.back else new):
        gone = NEW if c.back else OLD
        return st._replace(client=alone(1 - gone, gone, c.told, c.flying))
    c = st.client
    if c.step == 'closed' and c.front == (0 if c.back else cfg.units):
        return has_told(cfg, st, OLD if c.back else NEW, APART, c._replace(step='ending'))
    return st
