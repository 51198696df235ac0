#!/usr/bin/env python3
"""Checksums beside md's data, on a mirror of two members: what docs/simulation.md says of them.

    integrity.py                the rules together, then each of them left out
    integrity.py --trace RULE   the shortest counterexample without rules whose name has RULE

Plain Python 3. Its status is 0 when the promises hold and each rule is needed.

What is modelled. Each member has one block of data, its entry of the table, the mark of the page, a
superblock and the header of its integrity area, and a volatile cache: a loss of power keeps of each
cell the old content or any later one. A superblock is (events, time, members in sync), a header the
superblocks that it accepts. Contents are numbers of writes; a block that rots is 100 more, and an
entry is the content that it fits, or None where it is not known. Braid and md take turns with both
members or with one; members are lost, miss writes and superblocks, return or are put back as they
were at an earlier time, with their integrity areas or without, or the areas alone.

What is checked, in every state:

    P1 an entry that is trusted fits its block, unless that has rotted: no false alarm
    P2 a member that only Braid had is trusted: no needless work
    P3 rot fits no entry that is known: it is noticed before it is given out or copied

md copies rot like anything else, so whatever md has had is taken for content; and so is what was
not known when the only other copy was made of it. One block rots, once.
What is left out: several blocks, places of blocks, codes with parity, rot of tables (their pages
have checksums), and an area alone from so short ago that it accepts the superblock of now: nothing
tells that one, as members have no other trace of it.
"""
import os
import sys
import time
from collections import deque, namedtuple
from concurrent.futures import ProcessPoolExecutor
from itertools import product

ROT = 100
D, T, M, S, H = CELLS = range(5)        # block, entry, mark, superblock, header
BOTH = 0b11

# cells: durable; pend: later writes.
Member = namedtuple('Member', 'cells pend')
# sync, there: masks. entry, mark: as they are in memory. target: the superblock that is being
# written, told: who is to be told; ready: the header of the first of them accepts it.
Run = namedtuple('Run', 'sync there entry mark target told ready')
# who: off, braid or md. had: members that somebody else had since they were trusted. copy: of
# member 1, with what of it, or 'back'.
State = namedtuple('State', 'members who run writes boots clock had rot copy md')

Config = namedtuple('Config', 'name writes boots clock rot md lose copy off',
                    defaults=(2, 2, 3, 0, (), False, None, frozenset()))

ARRAYS = {
    'cuts': Config('power cuts', writes=3),
    'rot': Config('power cuts, rot', rot=1),
    'lost': Config('a member is lost and returns, rot', writes=1, rot=1, lose=True),
    'md': Config('md in turns with both', boots=3, clock=2, md=(BOTH,)),
    'md-rot': Config('md in turns with both, rot', writes=1, boots=3, clock=2, rot=1, md=(BOTH,)),
    'md-one': Config('md in turns with any', writes=1, boots=3, clock=2, md=(0b01, 0b10, BOTH),
                     lose=True),
    'past': Config('a member is put back', writes=1, boots=3, copy='DTMSH'),
    'past-disk': Config('a member is put back without its area', writes=1, boots=3, clock=2,
                        copy='DS'),
    'past-area': Config('an area is put back', writes=1, boots=3, clock=2, copy='TMH'),
}
# An array in which the rule is needed.
RULES = [
    ('mark-first', 'cuts', 'the mark is durable before the first write to its blocks'),
    ('table-before-clear', 'cuts', 'the entry is durable before the mark is cleared'),
    ('data-before-clear', 'cuts', 'and so is the block'),
    ('header-first', 'cuts', 'the header accepts a superblock before that is written'),
    ('both', 'cuts', 'and still the one that it replaces'),
    ('own-superblock', 'lost', 'of that member, which may be older than that of the others'),
    ('whole-superblock', 'md', 'a superblock is known by all of it, not by its event count'),
    ('witnessed', 'md', 'nothing is trusted where md writes data without a superblock'),
    ('mark-all-first', 'md', 'all is marked before a superblock of somebody else is accepted'),
    ('marked-on-return', 'md-one', 'also on a member that somebody else had meanwhile'),
    ('rebuild-marked', 'cuts', 'what is found marked proves nothing'),
    ('confirmed-only', 'rot', 'and is made anew only from what the other member confirms'),
    ('heal-fits', 'rot', 'rot is rewritten by what fits; anything else is a write, and unknown'),
    ('mark-copies', 'lost', 'what is copied is a write like any other: marked before'),
    ('verify-source', 'lost', 'and it is verified before'),
]
REACH = 2000000


# --- Members --------------------------------------------------------------------------------------

def put(member, *writes):
    return Member(member.cells, member.pend + writes)


def flush(member, keep=()):
    """keep: cells whose writes stay in the cache."""
    cells = list(member.cells)
    for cell, value in member.pend:
        if cell not in keep:
            cells[cell] = value
    return Member(tuple(cells), tuple(p for p in member.pend if p[0] in keep))


def seen(member, cell):
    for at, value in reversed(member.pend):
        if at == cell:
            return value
    return member.cells[cell]


def cuts(member):
    values = [{member.cells[cell], *(v for at, v in member.pend if at == cell)} for cell in CELLS]
    return [Member(cells, ()) for cells in product(*values)]


def change(items, i, value):
    return items[:i] + (value,) + items[i + 1:]


def bits(mask):
    return [i for i in (0, 1) if mask >> i & 1]


def start(cfg):
    first = (1, 1, BOTH)
    member = Member((0, 0, False, first, (first,)), ())
    return State((member, member), 'off', None, 0, 0, 1, 0, 0, None, 0)


# --- What has to hold -----------------------------------------------------------------------------

def judge(cfg, st):
    if st.who != 'braid':
        return None
    for i in bits(st.run.there):
        entry, block = st.run.entry[i], seen(st.members[i], D)
        if entry is not None and entry >= ROT:
            return f'P3 rot of member {i} fits its entry'
        if entry is not None and entry != block and block < ROT:
            return f'P1 block {block} of member {i} does not fit its entry {entry}'
    return None


# --- Braid starts ---------------------------------------------------------------------------------

def accepts(cfg, member):
    own, header = seen(member, S), seen(member, H)
    if 'whole-superblock' in cfg.off:
        return own[0] in (accepted[0] for accepted in header)
    return own in header


def found(cfg, st, i, returns=False):
    """The member as it is taken in, its entry and its mark; or a broken promise."""
    member = st.members[i]
    if accepts(cfg, member):
        marked = seen(member, M)
        trusted = not marked or 'rebuild-marked' in cfg.off
        return member, seen(member, T) if trusted else None, marked and not trusted
    if not st.had >> i & 1:
        return f'P2 member {i} is not trusted'
    header = (H, (seen(member, S),))
    if returns and 'marked-on-return' in cfg.off:
        return put(member, header), seen(member, T), seen(member, M)
    if 'mark-all-first' in cfg.off:
        return put(member, header, (M, True)), None, True
    return put(flush(put(member, (M, True))), header), None, True


def newest(members):
    return max((seen(member, S) for member in members))


def starts(cfg, st):
    latest = newest(st.members)
    for reached in (1, 2, 3) if cfg.lose else (BOTH,):
        in_sync = latest[2] & reached
        for i in bits(in_sync):
            if seen(st.members[i], S)[0] < latest[0] - 1:
                in_sync &= ~(1 << i)
        if not in_sync or not any(seen(st.members[i], S) == latest for i in bits(in_sync)):
            continue
        members, entry, mark = st.members, [None] * 2, [True] * 2
        for i in bits(in_sync):
            taken = found(cfg, st, i)
            if isinstance(taken, str):
                yield taken, taken
                return
            member, entry[i], mark[i] = taken
            members = change(members, i, member)
        run = Run(in_sync, in_sync, tuple(entry), tuple(mark), None, 0, False)
        if in_sync != latest[2]:
            run = tell(run, st, members)
        yield f'braid starts with {in_sync:02b}', st._replace(
            members=members, who='braid', run=run, boots=st.boots + 1,
            clock=st.clock + (run.target is not None))


def tell(run, st, members):
    """Superblocks are to say who is in sync."""
    events = max(seen(members[i], S)[0] for i in bits(run.there))
    return run._replace(target=(events + 1, st.clock + 1, run.sync), told=run.there, ready=False)


# --- Braid runs -----------------------------------------------------------------------------------

def edit(st, i, member, **values):
    return st._replace(members=change(st.members, i, member), run=st.run._replace(**values))


def remember(run, i, entry, mark):
    return dict(entry=change(run.entry, i, entry), mark=change(run.mark, i, mark))


def runs(cfg, st):
    run = st.run
    if run.target:
        yield tells(cfg, st)
        return
    yield from writes(cfg, st)
    yield from settles(cfg, st)
    yield from builds(cfg, st)
    yield from heals(cfg, st)
    if st.clock < cfg.clock:
        yield 'superblocks are due', st._replace(
            run=tell(run, st, st.members), clock=st.clock + 1)
    if any(member.pend for member in st.members):
        yield 'all is flushed', st._replace(members=tuple(map(flush, st.members)))
    if cfg.lose:
        yield from loses(cfg, st)
    if cfg.lose or cfg.copy:
        yield from returns(cfg, st)


def writes(cfg, st):
    """A block is written to all that are in sync, or are rebuilt."""
    run = st.run
    if st.writes == cfg.writes:
        return
    bare = [i for i in bits(run.there) if not run.mark[i]]
    for i in bare[:1]:
        marked = put(st.members[i], (M, True))
        marked = marked if 'mark-first' in cfg.off else flush(marked)
        yield f'member {i} is marked', edit(st, i, marked, mark=change(run.mark, i, True))
    if not bare:
        new = st.writes + 1
        members = tuple(put(member, (D, new)) if run.there >> i & 1 else member
                        for i, member in enumerate(st.members))
        entry = tuple(new if run.there >> i & 1 else None for i in (0, 1))
        yield f'write {new}', st._replace(
            members=members, writes=new, run=run._replace(entry=entry))


def settles(cfg, st):
    """Until the mark is cleared, an entry on the disk makes no difference."""
    run, keep = st.run, {'table-before-clear': T, 'data-before-clear': D}
    kept = [keep[rule] for rule in cfg.off & keep.keys()]
    for i in bits(run.there):
        if run.mark[i]:
            member = flush(put(st.members[i], (T, run.entry[i])), kept)
            yield f'the entry of member {i} is written, and its mark cleared', edit(
                st, i, put(member, (M, False)), mark=change(run.mark, i, False))


def builds(cfg, st):
    """An entry that is not known is made of what the other member confirms."""
    run = st.run
    for i in bits(run.sync):
        if run.entry[i] is not None or not run.mark[i]:
            continue
        block, other = seen(st.members[i], D), 1 - i
        confirmed = run.sync >> other & 1 and seen(st.members[other], D) == block
        if confirmed or 'confirmed-only' in cfg.off:
            yield f'the entry of member {i} is made anew', edit(
                st, i, st.members[i], entry=change(run.entry, i, block))


def heals(cfg, st):
    """Rot is rewritten from the other member, if that is known to be good or not known to be bad.
    Where it fits the entry no mark is needed: whatever a loss of power leaves, the entry is right.
    Anything else is a write like any other, of what is not known."""
    run = st.run
    for i in bits(run.sync) if run.sync == BOTH else ():
        member, entry = st.members[i], run.entry[i]
        good, known = seen(st.members[1 - i], D), run.entry[1 - i]
        if entry in (None, seen(member, D)) or known not in (None, good):
            continue
        if entry == good or 'heal-fits' in cfg.off:
            yield f'member {i} is rewritten', edit(st, i, put(member, (D, good)))
        elif run.mark[i]:
            yield f'member {i} is rewritten, and not known', edit(
                st, i, put(member, (D, good)), entry=change(run.entry, i, None))
        else:
            yield f'member {i} is marked to be rewritten', edit(
                st, i, flush(put(member, (M, True))), mark=change(run.mark, i, True))


def tells(cfg, st):
    """Superblocks are written, to one member after the other, each after its header."""
    run = st.run
    i = bits(run.told)[0]
    member = st.members[i]
    if not run.ready:
        old = seen(member, S)
        if 'own-superblock' in cfg.off:
            old = newest(st.members[j] for j in bits(run.there))
        member = put(member, (H, (run.target,) if 'both' in cfg.off else (old, run.target)))
        member = member if 'header-first' in cfg.off else flush(member)
        return f'the header of member {i} is written', edit(st, i, member, ready=True)
    told = run.told & ~(1 << i)
    member = put(member, (S, run.target))
    # Without the rule header and superblock are on their way together.
    member = member if 'header-first' in cfg.off else flush(member)
    return f'the superblock of member {i} is written', edit(
        st, i, member, told=told, ready=False, target=run.target if told else None)


def loses(cfg, st):
    run = st.run
    if run.there == BOTH and st.clock < cfg.clock:
        for i in bits(run.there):
            left = run.sync & ~(1 << i)
            if left:
                gone = run._replace(sync=left, there=left)
                for member in cuts(st.members[i]):
                    after = st._replace(members=change(st.members, i, member), run=gone)
                    yield f'member {i} is lost', after._replace(
                        run=tell(gone, after, after.members), clock=st.clock + 1)


def returns(cfg, st):
    """A member that was away is there again, and is copied to."""
    run = st.run
    if run.there != BOTH:
        i = bits(BOTH & ~run.there)[0]
        taken = found(cfg, st, i, returns=True)
        if isinstance(taken, str):
            yield taken, taken
            return
        member, entry, mark = taken
        run = run._replace(there=BOTH, **remember(run, i, entry, mark))
        yield f'member {i} is back', st._replace(
            members=change(st.members, i, member), run=run)
    elif run.sync != BOTH:
        i = bits(BOTH & ~run.sync)[0]
        yield from copies(cfg, st, 1 - i, i)


def copies(cfg, st, source, target):
    run, member = st.run, st.members[target]
    if not run.mark[target] and 'mark-copies' not in cfg.off:
        yield f'member {target} is marked for the copy', edit(
            st, target, flush(put(member, (M, True))), mark=change(run.mark, target, True))
        return
    block, entry = seen(st.members[source], D), run.entry[source]
    if entry is not None and entry != block and 'verify-source' not in cfg.off:
        return
    if 'verify-source' in cfg.off:
        entry = block
    elif entry is None and block >= ROT:
        # Nothing tells that from now on.
        block -= ROT // 2
        st = st._replace(members=change(st.members, source, put(st.members[source], (D, block))))
    run = run._replace(sync=BOTH, entry=change(run.entry, target, entry))
    after = st._replace(members=change(st.members, target, put(member, (D, block))), run=run)
    yield f'member {target} is copied to', after._replace(
        run=tell(run, after, after.members), clock=st.clock + 1)


# --- Others, and troubles -------------------------------------------------------------------------

def md_starts(cfg, st):
    """Superblocks first: of both members the event count may stay, and the time moves."""
    latest = newest(st.members)
    for reached in cfg.md if not st.md else ():
        if not any(seen(st.members[i], S) == latest for i in bits(reached & latest[2])):
            continue
        steps = (0, 1) if latest[2] == reached else (2,)
        current = max((seen(st.members[i], S), i) for i in bits(reached & latest[2]))[1]
        block = seen(st.members[current], D)
        for step in steps:
            told = (latest[0] + step, st.clock + 1, reached)
            told = latest if 'witnessed' in cfg.off else told
            members = st.members
            for i in bits(reached):
                # A member that is not in sync is copied to. What has rotted is content from now on.
                behind = not latest[2] >> i & 1
                content = block if behind else seen(members[i], D)
                content = content - ROT // 2 if content >= ROT else content
                taken = flush(put(members[i], (S, told), (D, content)))
                members = change(members, i, taken)
            yield f'md starts with {reached:02b}', st._replace(
                members=members, who='md', boots=st.boots + 1, clock=st.clock + 1,
                had=st.had | reached, md=reached)


def md_runs(cfg, st):
    if st.writes < cfg.writes:
        new = st.writes + 1
        members = tuple(put(member, (D, new)) if st.md >> i & 1 else member
                        for i, member in enumerate(st.members))
        yield f'md writes {new}', st._replace(members=members, writes=new)
    members = tuple(flush(member) for member in st.members)
    yield 'md stops', st._replace(members=members, who='off')


def troubles(cfg, st):
    if st.who != 'off':
        for members in product(*map(cuts, st.members)):
            yield 'the power fails', st._replace(members=members, who='off', run=None)
    if st.rot < cfg.rot and st.who != 'md':
        for i, member in enumerate(st.members):
            if not any(cell == D for cell, _ in member.pend) and member.cells[D] < ROT // 2:
                rotten = change(member.cells, D, member.cells[D] + ROT)
                yield f'member {i} rots', st._replace(
                    members=change(st.members, i, Member(rotten, member.pend)), rot=st.rot + 1)
    if cfg.copy and st.copy is None:
        for member in cuts(st.members[1]):
            yield 'member 1 is copied', st._replace(copy=member.cells)
    elif cfg.copy and st.copy != 'back' and st.who == 'off':
        cells = tuple(st.copy[cell] if 'DTMSH'[cell] in cfg.copy else st.members[1].cells[cell]
                      for cell in CELLS)
        # An area alone that accepts the superblock is not to be told from the one of now, and a
        # disk alone that is accepted lacks writes: that is no false alarm.
        alone = cfg.copy != 'DTMSH'
        if not (alone and cells[S] in cells[H]):
            yield 'the copy is put back', st._replace(
                members=(st.members[0], Member(cells, ())), copy='back',
                had=st.had | (0b10 if alone else 0))


def steps(cfg, st):
    for label, after in all_steps(cfg, st):
        if not isinstance(after, str):
            for i in bits(after.had if after.who == 'braid' else 0):
                cells = after.members[i].cells
                if cells[S] in cells[H]:
                    after = after._replace(had=after.had & ~(1 << i))
        yield label, after


def all_steps(cfg, st):
    yield from troubles(cfg, st)
    if st.who == 'off' and st.boots < cfg.boots:
        yield from starts(cfg, st)
        yield from md_starts(cfg, st)
    elif st.who == 'off':
        yield from ((label, after) for label, after in starts(cfg, st) if label == after
                    or judge(cfg, after))
    elif st.who == 'md':
        yield from md_runs(cfg, st)
    else:
        yield from runs(cfg, st)


# --- Exploration ----------------------------------------------------------------------------------

def explore(job):
    """Breadth first. The broken promise and the shortest trace to it, or None; and states."""
    kind, off = job
    cfg = ARRAYS[kind]._replace(off=frozenset(off))
    first = start(cfg)
    before, queue = {first: None}, deque([first])

    def trace(st, last):
        path = [last]
        while before[st]:
            st, label = before[st]
            path.append(label)
        return path[::-1]
    while queue and len(before) < REACH:
        st = queue.popleft()
        for label, after in steps(cfg, st):
            if isinstance(after, str):
                return after, trace(st, label), len(before)
            if after in before:
                continue
            before[after] = (st, label)
            wrong = judge(cfg, after)
            if wrong:
                return wrong, trace(after, wrong), len(before)
            queue.append(after)
    return ('not explored to its end', [], len(before)) if queue else (None, [], len(before))


def main(args):
    want = args[1] if len(args) == 2 and args[0] == '--trace' else None
    if args and want is None:
        sys.exit('usage: integrity.py [--trace RULE]')
    began = time.monotonic()
    fine = True
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [] if want else [(kind, ()) for kind in ARRAYS]
        for (kind, _), (wrong, trace, states) in zip(jobs, pool.map(explore, jobs)):
            fine &= wrong is None
            print(f'{ARRAYS[kind].name:70} {states:8}  {wrong or "holds"}', flush=True)
            for line in trace:
                print('    ' + line)
        rules = [rule for rule in RULES if not want or want in rule[0]]
        jobs = [(kind, (rule,)) for rule, kind, _ in rules]
        for (rule, _, what), (wrong, trace, states) in zip(rules, pool.map(explore, jobs)):
            fine &= wrong is not None and bool(trace)
            print(f'{rule + ": " + what:79} {states:7}  {wrong or "NOT NOTICED"}', flush=True)
            if want:
                print(''.join(f'    {line}\n' for line in trace), end='')
    print(f'{time.monotonic() - began:.0f} s')
    sys.exit(not fine)


if __name__ == '__main__':
    main(sys.argv[1:])
