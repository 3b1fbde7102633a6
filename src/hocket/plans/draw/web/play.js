"use strict";
// What a plan means, in numbers: the twin of interpret.py, for sums. Nothing here knows of a page, and the tests run it
// alone. A move is [verb, dst buffer, dst rank, dst chunk, src buffer, src rank, src chunk, count].

const INP = 0, OUT = 1, TMP = 2, REDUCE = 1;
const BUFFERS = ["inp", "out", "tmp"];
const MOST_PARTS = 64; // of a sum that are remembered: more than a right plan has, and few where a wrong one doubles
const UNWRITTEN = { value: NaN, of: [] };

function slot(buffer, rank, chunk) {
  return `${BUFFERS[buffer]} ${rank} ${chunk}`;
}

/** What lies where before the first step: slot -> {value, of}, `of` being the [rank, chunk] that it is the sum of. */
function begin(plan) {
  const slots = new Map();
  for (const buffer of [INP, OUT]) {
    plan[BUFFERS[buffer]].forEach((row, rank) => row.forEach((value, chunk) => {
      if (value !== null) slots.set(slot(buffer, rank, chunk), { value, of: [[rank, chunk]] });
    }));
  }
  return slots;
}

/** The moves of a step chunk by chunk: {folds, from: {buffer, rank, chunk}, to: the same}. */
function singles(step) {
  return step.flatMap(([verb, db, dr, dc, sb, sr, sc, count]) => Array.from({ length: count }, (_, i) => ({
    reduces: verb === REDUCE,
    from: { buffer: sb, rank: sr, chunk: sc + i, key: slot(sb, sr, sc + i) },
    to: { buffer: db, rank: dr, chunk: dc + i, key: slot(db, dr, dc + i) },
  })));
}

/** What lies where after a step: all reads, then all writes; into one slot, moves apply in their order. */
function after(slots, moves) {
  const written = new Map();
  for (const { reduces, from, to } of moves) {
    const came = slots.get(from.key) ?? UNWRITTEN;
    const held = written.get(to.key) ?? slots.get(to.key) ?? UNWRITTEN;
    const of = [...held.of, ...came.of].slice(0, MOST_PARTS);
    written.set(to.key, reduces ? { value: held.value + came.value, of } : came);
  }
  return new Map([...slots, ...written]);
}

/** All of a plan: `states[k]` before step k, the last one at the end, and the `moves` of each step. */
function play(plan) {
  const moves = plan.steps.map(singles);
  const states = [begin(plan)];
  for (const step of moves) {
    const folded = new Set(step.filter((move) => move.reduces).map((move) => move.to.key));
    for (const move of step) move.folds = folded.has(move.to.key); // with the copy that such a fold begins with
    states.push(after(states[states.length - 1], step));
  }
  return { states, moves };
}

/** The numbers in one buffer, [rank][chunk], null where nothing was written. */
function numbers(plan, slots, buffer, chunks = plan.chunks) {
  return Array.from({ length: plan.size }, (_, rank) => Array.from({ length: chunks }, (_, chunk) => (
    slots.get(slot(buffer, rank, chunk))?.value ?? null
  )));
}

/** How many messages a step is: all that one rank sends to one other is one. */
function messages(moves) {
  const crossing = moves.filter(({ from, to }) => from.rank !== to.rank);
  return new Set(crossing.map(({ from, to }) => `${from.rank} ${to.rank}`)).size;
}

/** The slots of the output that do not hold what the collective promises: how many. */
function wrong(plan, slots) {
  const got = numbers(plan, slots, OUT);
  return plan.want.flatMap((row, r) => row.filter((value, c) => value !== null && value !== got[r][c])).length;
}
