#!/usr/bin/env python3
"""Explores a model of arrays over nodes: what docs/cluster.md promises, with all that may fail.

    survival_check.py               the protocol on small arrays, then each rule switched off
    survival_check.py --quick       the protocol a tenth as far, and the rules that are missed soon
    survival_check.py --trace RULE  the shortest counterexample without rules whose name has RULE

Plain Python 3; what it prints is the same each time, but for the seconds at the end. Its status is
0 when the protocol holds and each rule is needed. The rules are those of docs/simulation.md, where
the machines themselves are tried.

What is modelled. One slice of one stripe. A member holds one cell of it: a data block, or a parity
of all of them. Contents are symbolic: a data block is the number of the slice-set that wrote it, a
parity the tuple of the numbers that it sums up, -1 is rubbish. So a lost block decodes to rubbish
exactly when what is summed does not belong together. A member has a durable content and a cache of
later stores; a crash keeps any one of them (so any subset of the stores), and takes the ring.
Journal records, bits, grants and views are durable when they are answered. Two clients: the first
writes, flushes, excludes, readmits, clears bits and trims at will, and is never told to stop: it
may be slow, cut off, or dead from any moment on. The second takes over at any moment, with any
nodes that it happens to reach, and then does the same. A partition is a node that somebody does not
hear of; messages are delivered at any time, in any order between connections; a message of an old
epoch arrives as late as it likes. Suspicion may be wrong at any time. In some arrays a member's
store is copied once, at any moment, as a crash would leave it, and put back once, while its node is
down: vote file and superblock are as old then, and its incarnation is new.

What is checked. In every state, twice: (soft) everybody stays as they are, or (hard) the power
fails everywhere, with every outcome of every cache; then every choice of at most f members is lost
for good, and a fresh client takes over with the rest. What it reads is compared with what was
acknowledged and flushed. And at each takeover that takes place in the model itself, so that
takeovers are interrupted, by crashes and by a next one, at every step.

    I1 acknowledged data stays; after a loss of power what was flushed
    I2 a block that nobody writes keeps its content
    I3 a block that is being written reads old or new, where promised
    I4 one writer
    I5 what is in sync fits, outside marks; what is not is marked, or known to be from the past
    I6 when all are back it starts (dirty and degraded with `bitmap`: not by itself)
    I7 what is in sync fits, or is unknown in its member's log, or its slice in doubt: see torn.py
    I8 nobody who holds the array is taken for a store from the past

A store that was put back has forgotten grants and views as well, and no majority survives that for
certain. So nothing is asked where its vote decides (as many others as are needed have to answer),
nor of writes that are younger than whatever was cleared or trimmed last, where the power failed
everywhere and the copy is needed as one in sync: no count tells that copy from the member.

A loss of power under whole stripes, what is read and written after it, and what returning members
are told, is a model of its own, in torn.py. A move of all data to an array over more nodes is
another one, in moved.py, with promises of its own, M1 to M4.

What is left out: ranges, positions and generations (one area: slice-sets follow each other as the
area lock has it), the transfers within a slice-set, sectors torn inside a store, journal layout and
crc, ring memory, clocks, changes of the voters themselves, media errors, and catch-up piece by
piece (it is one step here, as is a resync). Event counts move with clearing only, and for who
joins: more of them, as in superblocks, would make copies older.
"""
import os
import sys
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor

import moved
import moving
import torn
from steps import steps
from takeover import NO_CLIENT, Block, Client, Config, NOTHING, Node, State, View, check

RAID5, RAID6, MIRROR = [0, 1, None], [0, 1, None, None], [0, None]
COPIES = [0, None, None]

# Voters are the members, and a witness where the level needs one.
ARRAYS = {
    'tiny': dict(name='3 nodes, f=1, bitmap, no views', cells=RAID5, f=1, sets=[(0,)],
                 policy='bitmap', crashes=1, views=0),
    'tiny-ppl': dict(name='3 nodes, f=1, ppl, no views', cells=RAID5, f=1, sets=[(0,), (0, 1)],
                     policy='ppl', views=0),
    'tiny-mirror': dict(name='mirror of 2 and a witness, 1 set', cells=MIRROR, f=1, sets=[(0,)],
                        policy='bitmap', witnesses=1),
    'raid5': dict(name='3 nodes, f=1, bitmap', cells=RAID5, f=1, sets=[(0,)], policy='bitmap',
                  crashes=1),
    'raid5-2': dict(name='3 nodes, f=1, bitmap, 2 sets', cells=RAID5, f=1, sets=[(0,), (1,)],
                    policy='bitmap', crashes=1),
    'raid5-cut': dict(name='3 nodes, f=1, bitmap, power cut', cells=RAID5, f=1, sets=[(0,)],
                      policy='bitmap', cuts=1),
    'ppl': dict(name='3 nodes, f=1, ppl, 2 sets', cells=RAID5, f=1, sets=[(0,), (0, 1)],
                policy='ppl'),
    'ppl-2': dict(name='3 nodes, f=1, ppl, whole stripe first', cells=RAID5, f=1,
                  sets=[(0, 1), (0,)], policy='ppl'),
    'ppl-cut': dict(name='3 nodes, f=1, ppl, power cut', cells=RAID5, f=1, sets=[(0,)],
                    policy='ppl', cuts=1),
    'journal': dict(name='3 nodes, f=1, journal, 2 sets', cells=RAID5, f=1, sets=[(0,), (0, 1)],
                    policy='journal', views=2),
    'mirror': dict(name='mirror of 2 and a witness', cells=MIRROR, f=1, sets=[(0,), (0,)],
                   policy='bitmap', crashes=1, witnesses=1),
    'raid6': dict(name='4 nodes and a witness, f=2, bitmap', cells=RAID6, f=2, sets=[(0,)],
                  policy='bitmap', crashes=1, witnesses=1),
    'raid6-ppl': dict(name='4 nodes and a witness, f=2, ppl', cells=RAID6, f=2, sets=[(0,)],
                      policy='ppl', witnesses=1),
    'past-mirror': dict(name='mirror of 2 and a witness, a copy', cells=MIRROR, f=1, sets=[(0,)],
                        policy='bitmap', witnesses=1, views=2, clients=1, copies=0b11),
    'past-mirror-2': dict(name='mirror of 2, a witness, 2 clients, copy', cells=MIRROR, f=1,
                          sets=[(0,)], policy='bitmap', witnesses=1, views=1, copies=0b11),
    'past-count': dict(name='mirror of 2, a witness, marked, a copy', cells=MIRROR, f=1,
                       sets=[(0,)], policy='bitmap', witnesses=1, views=1, copies=0b1, marked=True),
    'past-log': dict(name='mirror of 2, a witness, journal, a copy', cells=MIRROR, f=1,
                     sets=[(0,)], policy='journal', witnesses=1, views=2, clients=1, copies=0b11),
    'past': dict(name='3 nodes, f=1, bitmap, a copy', cells=RAID5, f=1, sets=[(0,), (0,)],
                 policy='bitmap', views=2, clients=1, copies=0b111),
    'past-start': dict(name='3 nodes, f=1, bitmap, a copy, 2 clients', cells=RAID5, f=1,
                       sets=[(0,)], policy='bitmap', views=1, copies=0b111),
    'past-journal': dict(name='3 nodes, f=1, journal, a copy', cells=RAID5, f=1,
                         sets=[(0,), (0, 1)], policy='journal', views=2, clients=1, copies=0b111),
    'past-journal-2': dict(name='3 nodes, f=1, journal, power cut, copy', cells=RAID5, f=1,
                           sets=[(0,)], policy='journal', cuts=1, views=0, copies=0b111),
}
# Arrays of the model in torn.py.
TORN = {
    'torn': dict(name='3 nodes, f=1, torn', cells=RAID5, f=1, sets=[(0, 1), (0, 1)]),
    'torn-busy': dict(name='3 nodes, f=1, torn, never idle', cells=RAID5, f=1,
                      sets=[(0, 1), (0, 1)], busy=True),
    'torn-full': dict(name='3 nodes, f=1, torn, no bad-block logs', cells=RAID5, f=1,
                      sets=[(0, 1), (0, 1)], room=False),
    'torn-parts': dict(name='3 nodes, f=1, torn, then parts', cells=RAID5, f=1,
                       sets=[(0, 1), (0,), (1,)]),
    'torn-cuts': dict(name='3 nodes, f=1, torn, power lost twice', cells=RAID5, f=1,
                      sets=[(0, 1), (0, 1)], cuts=2, losses=2),
    'torn-bitmap': dict(name='3 nodes, f=1, bitmap, torn', cells=RAID5, f=1, sets=[(0,), (1,)],
                        policy='bitmap', losses=2),
    'torn-copies': dict(name='mirror of 3, f=2, torn', cells=COPIES, f=2, sets=[(0,), (0,)]),
    'torn-raid6': dict(name='4 nodes, f=2, torn', cells=RAID6, f=2, sets=[(0, 1), (0, 1)]),
}
# Moves of the model in moved.py.
MOVED = {
    'moved': dict(name='a move, power cut', units=3, sets=(0, 2, 0), cuts=1),
    'moved-back': dict(name='a move that goes back, power cut', units=3, sets=(0, 1), cuts=1,
                       undo=True),
    'moved-nodes': dict(name='a move, nodes are not found', sets=(0,), clients=3, fewer=True),
    'moved-lost': dict(name='a move that goes back, a node is lost', units=2, sets=(), losses=1,
                       undo=True),
    'moved-made': dict(name='a move that is begun, nodes are not found', sets=(0,), clients=3,
                       begin=True, fewer=True),
    'moved-rival': dict(name='a move that is begun, with a rival', units=2, sets=(0,), clients=3,
                        begin=True, rival=True),
    'moved-rival-back': dict(name='a move that goes back, with a rival', units=2, sets=(0,),
                             rival=True, undo=True),
}
# How far each is explored.
PROTOCOL = [('tiny', 200000), ('tiny-ppl', 200000), ('tiny-mirror', 200000), ('raid5', 80000),
            ('raid5-2', 50000), ('raid5-cut', 40000), ('ppl', 100000), ('ppl-2', 40000),
            ('ppl-cut', 30000), ('journal', 60000), ('mirror', 40000), ('raid6', 8000),
            ('raid6-ppl', 8000),
            ('past-mirror', 600000), ('past-log', 1100000), ('past-mirror-2', 100000),
            ('past-count', 400000), ('past', 50000), ('past-start', 50000),
            ('past-journal', 30000), ('past-journal-2', 60000),
            ('torn', 160000), ('torn-busy', 700000), ('torn-full', 200000), ('torn-parts', 170000),
            ('torn-cuts', 700000), ('torn-bitmap', 50000), ('torn-copies', 200000),
            ('torn-raid6', 150000),
            ('moved', 100000), ('moved-back', 100000), ('moved-nodes', 100000),
            ('moved-lost', 100000), ('moved-made', 100000), ('moved-rival', 100000),
            ('moved-rival-back', 100000)]
# As in docs/simulation.md. An array in which the rule is needed.
RULES = [
    ('barrier', 'raid5', 'nobody overwrites before all have prepared'),
    ('go-needs-view', 'raid5', 'go only when all of the recorded S have prepared'),
    ('view-before-ack', 'raid5', 'a view is recorded before what it misses is acknowledged'),
    ('record-quorum', 'raid5', 'a view is recorded by |V|-q+1 voters, not one fewer'),
    ('view-order', 'raid5', 'views are ordered by epoch first'),
    ('epoch-refused', 'raid5-2', 'a node that has granted an epoch refuses what is older, go too'),
    ('promise-durable', 'mirror', 'a grant is durable'),
    ('restart-noticed', 'raid5', 'whose incarnation is not that of the view has no memory of it'),
    ('reconnect', 'raid5-2', 'who has started again is caught up before it is spoken to'),
    ('all-hold', 'raid5', 'a set goes iff all that are in sync hold it, not if any does'),
    ('prepared-counts', 'raid5', 'prepared is enough at a takeover, nobody need have stored it'),
    ('decide-after-view', 'raid5', 'who decides is recorded before anybody goes'),
    ('resolved-before-serving', 'raid5-2', 'all are settled before anything is served'),
    ('torn-recorded', 'raid5-cut', 'a view says that a resync is due until it is done'),
    ('intent', 'raid5', 'the region is marked on all of S before a set opens'),
    ('clear-after-flush', 'raid5', 'a mark goes after a flush of all'),
    ('clear-when-whole', 'raid5-2', 'no mark goes while a member is missing'),
    ('catch-up', 'raid5-2', 'a member is caught up before it is in sync'),
    ('catch-up-from-loss', 'raid5-2', 'with all that is marked, from before the loss, too'),
    ('dirty-degraded', 'raid5-cut', 'no start when marked, degraded and unlogged'),
    ('trim-together', 'ppl', 'a record goes when its set is durable everywhere, not here'),
    ('trim-mark', 'tiny-ppl', 'what any member has trimmed is not replayed, nor what is older'),
    ('mark-passed-on', 'tiny-ppl', 'who drops at a takeover takes over the trim mark with that'),
    ('log-over-log', 'ppl', 'a whole stripe over records that are not trimmed is logged, too'),
    ('replay-order', 'journal', 'records are replayed in the order of versions'),
    ('flush-waits', 'ppl-2', 'a flush from the journal needs all before it logged'),
    ('join-after-trim', 'journal', 'nobody joins S while there are records that it lacks'),
    ('past-noticed', 'past-mirror', 'whose count is below what was cleared is from the past'),
    ('tick-after-flush', 'past-mirror', 'the count that clearing needs moves after the flush'),
    ('tick-before-clear', 'past-mirror', 'all have that count before anything is cleared'),
    ('count-before-bits', 'past-mirror', 'events_cleared is durable before cleared bits, or with'),
    ('count-before-view', 'past-mirror', 'who joins has the count before a view has it'),
    ('count-above-all', 'past-count', 'the next count is above that of everybody taken back'),
    ('trim-counted', 'past-log', 'trimming writes the count, too, into the header of the journal'),
    ('torn-rows', 'torn', 'what torn sums do not tell is unknown: most of what follows, at once'),
    ('unknown-recorded', 'torn', 'who is in sync has in its log what nobody could tell it'),
    ('unknown-read', 'torn', 'what is in such a log is missing for everybody'),
    ('unknown-cleared', 'torn', 'a cell leaves the log only with content that is known'),
    ('cleared-when-durable', 'torn-cuts', 'and after that is durable'),
    ('mended-when-durable', 'torn-cuts', 'and so where a resync has formed it'),
    ('resync-again', 'torn', 'what it could not form is tried again when a member has joined'),
    ('whole-slice-fits', 'torn-full', 'a set over a whole slice ends the doubt about its sums'),
    ('rewritten-known', 'torn', 'and takes these out of the logs'),
    ('known-before-answer', 'torn', 'before it is answered'),
    ('sums-noted', 'torn', 'sums in doubt are noted as unknown, or a next client doubts again'),
    ('noted-before-serving', 'torn', 'before anything is served'),
    ('noted-always', 'torn', 'also when all are there: a member may be lost with the client'),
    ('own-kept', 'torn', 'who returns to that client has what it held, where nothing tells it'),
    ('own-of-then', 'torn', 'but only who was in sync when the power was lost'),
    ('own-known', 'torn', 'and that brings no doubt back: its sums are noted already'),
    ('move-window', 'moved-rival-back', 'writes to what is being moved wait'),
    ('drained', 'moved-rival-back', 'and those before them are answered before it is copied'),
    ('move-flush', 'moved', 'what has moved is flushed before superblocks say so'),
    ('move-position', 'moved-rival-back', 'and they all say so before the front moves'),
    ('source-marked', 'moved', 'the old array says that data move before they do'),
    ('source-confirmed', 'moved-nodes', 'all its members say so before the next client serves'),
    ('front-confirmed', 'moved-nodes', 'and those of the new array where the front is'),
    ('front-by-grant', 'moved-rival-back',
     'the front is what superblocks say once they are granted'),
    ('alone-by-grant', 'moved-rival', 'and what is served alone is to stand alone then'),
    ('flush-both', 'moved', 'a flush is one of both arrays'),
    ('begun-whole', 'moved-made', 'no move begins while volumes of the new array are missing'),
    ('turn-told', 'moved-lost', 'data go back when superblocks say so'),
    ('back-ends', 'moved-lost', 'and stay there once all are back'),
    ('known-first', 'moved-nodes',
     'of equally new superblocks that of a member known to all counts'),
    ('apart-wins', 'moved-lost', 'a new array that stands alone counts, whatever the old one says'),
    ('stale-target', 'moved-lost', 'and so does an old one, whatever is left of the new one'),
    ('removed-when-told', 'moved-rival-back',
     'volumes are removed once all members know what stands alone'),
    ('forgotten-when-gone', 'moved-lost',
     'votes are forgotten once all volumes of their array are gone'),
]
# Those that are missed late, after more than 30000 states: --quick leaves them out.
LATE = {'epoch-refused', 'promise-durable', 'clear-when-whole', 'catch-up', 'catch-up-from-loss',
        'count-before-view', 'count-above-all', 'cleared-when-durable', 'own-known'}
# Within so many states each rule has to be missed.
REACH = 300000


def array(kind, off=()):
    if kind in TORN:
        return torn.Torn(**TORN[kind], off=off)
    if kind in MOVED:
        return moved.Moved(**MOVED[kind], off=off)
    return Config(**ARRAYS[kind], off=off)


def name_of(kind):
    return (ARRAYS | TORN | MOVED)[kind]['name']


def start(cfg):
    zero = View(1, 1, cfg.all, (0,) * cfg.n, False)
    first = [0 if c is not None else (0,) * cfg.data for c in cfg.cells]
    first += [None] * (cfg.voters - cfg.n)
    bit = int(cfg.marked)
    nodes = tuple(Node(0, content, (), None, (), 0, bit, 1, zero, 0, 0, 0, 0) for content in first)
    one = Client(1, 'R', zero, None, 0, 0, False, 0, 0, 0, 0, 0, True, (0,) * cfg.n,
                 (1 << cfg.voters) - 1, 0, NOTHING, 0, False, 0, 0, 0, 0)
    return State(nodes, (one, NO_CLIENT), (Block(0, 0, 1),) * cfg.data, 0, 0, 0, 1, None)


def without_the_unheard(cfg, st):
    """Nobody listens to the first client any more."""
    one = st.clients[0]
    fenced = one and all(nd.prom > 1 for nd in st.nodes) and 'epoch-refused' not in cfg.off
    if fenced and not (one.s and not one.go):
        return st._replace(clients=(NO_CLIENT,) + st.clients[1:])
    return st


def model_of(cfg):
    """The first state, its steps, what judges states, and how that is called in a trace."""
    if isinstance(cfg, torn.Torn):
        return torn.start(cfg), torn.steps, torn.judge, 'all is read'
    if isinstance(cfg, moved.Moved):
        return moved.start(cfg), moving.steps, moved.judge, 'that is the state'
    last = 'a takeover comes, with or without a loss of power and of members'
    return start(cfg), heard_steps, lambda cfg, st: check(cfg, st.nodes, st.blocks), last


def heard_steps(cfg, st):
    for label, after in steps(cfg, st):
        yield label, after if isinstance(after, str) else without_the_unheard(cfg, after)


def explore(cfg, limit):
    """Breadth first. The broken invariant and the shortest trace to it, or None; states; and
    whether those are all."""
    first, steps_of, judge, last = model_of(cfg)
    seen, queue = {first: None}, deque([first])

    def trace(st, last):
        path = [last]
        while seen[st]:
            st, label = seen[st]
            path.append(label)
        return path[::-1]
    while queue and len(seen) < limit:
        st = queue.popleft()
        for label, after in steps_of(cfg, st):
            if isinstance(after, str):
                return after, trace(st, label), len(seen), False
            if after in seen:
                continue
            seen[after] = (st, label)
            wrong = judge(cfg, after)
            if wrong:
                return wrong, trace(after, last), len(seen), False
            queue.append(after)
    return None, None, len(seen), not queue


def run(job):
    kind, off, limit = job
    return explore(array(kind, off), limit)


def holds(pool, tenth):
    print('the protocol                              states  explored           result')
    fine = True
    jobs = [(kind, (), limit // tenth) for kind, limit in PROTOCOL]
    for (kind, _, _), (wrong, trace, states, done) in zip(jobs, pool.map(run, jobs)):
        fine &= wrong is None
        far = 'all' if done else 'breadth first'
        print(f'{name_of(kind):40} {states:7}  {far:17}  {wrong or "holds"}', flush=True)
        for line in trace or ():
            print('    ' + line)
    return fine


def each_is_needed(pool, rules, traces):
    print('\na rule switched off                                                   breaks  after  '
          'states')
    jobs = [(kind, (rule,), REACH) for rule, kind, _ in rules]
    fine = bool(rules)
    for (rule, kind, what), (wrong, trace, states, _) in zip(rules, pool.map(run, jobs)):
        fine &= wrong is not None
        short = wrong[:2] if wrong else 'none'
        print(f'{what:70}{short:7} {len(trace or ()):5} {states:7}', flush=True)
        if traces and trace:
            print(f'    {rule}, {name_of(kind)}: {wrong}')
            for line in trace:
                print('    ' + line)
    return fine


def main(args):
    quick = args == ['--quick']
    want = args[1] if len(args) == 2 and args[0] == '--trace' else None
    if args and not quick and want is None:
        sys.exit('usage: survival_check.py [--quick | --trace RULE]')
    rules = [rule for rule in RULES if want in rule[0]] if want else RULES
    if quick:
        rules = [rule for rule in RULES if rule[0] not in LATE]
    began = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        fine = want is not None or holds(pool, 10 if quick else 1)
        fine &= each_is_needed(pool, rules, want is not None)
    print(f'\n{time.monotonic() - began:.0f} s')
    sys.exit(not fine)


if __name__ == '__main__':
    main(sys.argv[1:])
