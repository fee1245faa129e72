// One row of scores that comes key by key, in any order, by one worker or by two whose states are merged. A step has three parts: a score
// comes; if it is a new maximum, all exponentials before it shrink by one factor; then its own exponential is added.
import { choice, number, time } from './figure.js';
import { drawing, entries, shape, text } from './draw.js';

const BANK = 5;
const ORDERS = ['as in the sentence', 'backwards', 'rising', 'falling'];
const [TOP, ROW] = [44, 34];
const [SCORES, EXPONENTIALS, VALUES] = [66, 256, 470]; // left edges, and the middle of a column
const WIDTH = 110;
const MOST = 5; // the longest bar of a score
const TABLE = TOP + 6 * ROW + 54;

/** How much of a step's part is done: from `from` to `to` of the step. */
const part = (fraction, from, to) => Math.min(Math.max((fraction - from) / (to - from), 0), 1);

export default attention => {
    const { tokens, x } = attention.Sentence.river();
    const [q, k, v] = attention.projections().map(w => attention.project(x, w));
    const all = new attention.Attention(q, k, v, attention.Mask.none());
    const keys = tokens.map((token, j) => ({
        token, score: entries(all.scores)(BANK, j), value: entries(v)(j, 0),
    }));
    const inOrder = [
        keys,
        keys.toReversed(),
        keys.toSorted((a, b) => a.score - b.score),
        keys.toSorted((a, b) => b.score - a.score),
    ];
    const absorb = part => {
        const state = new attention.OnlineSoftmax();
        for (const { score, value } of part) {
            state.absorb(new Float64Array([score]), new Float64Array([value]));
        }
        return state;
    };
    const told = x => Number.isFinite(x) ? number(x, 3) : '−∞';
    // Before the first key there is nothing to divide.
    const mean = state => state.sum === 0 ? '–' : told(state.output);
    // The first keys, as far as they are those of the worker that has the key with this number.
    const seenBy = (row, split, j, count) => row.slice(j + 1 < split ? 0 : split - 1, count);
    // The first key of the second worker.
    const firstOf = second => second === 0 ? 7 : second + 1;
    const rises = ({ order, second }) => inOrder[order].flatMap(({ score }, j) => {
        const { max } = absorb(seenBy(inOrder[order], firstOf(second), j, j));
        return score > max && Number.isFinite(max) ? [[j + 1, 'a new maximum']] : [];
    });
    return {
        controls: [
            choice('order', 'order of the keys', ORDERS),
            time('seen', 'keys seen', 6, 2, { seconds: 16, moments: rises }),
            choice('second', 'second worker', ['none', ...[2, 3, 4, 5, 6].map(key => `from key ${key}`)]),
        ],
        draw({ order, seen, second }) {
            const split = firstOf(second);
            const row = inOrder[order];
            // Between two keys, the next one is on its way: at a whole number, the last one is there.
            const coming = Math.max(Math.ceil(seen) - 1, 0);
            const fraction = seen - coming;
            const done = fraction === 1 ? coming + 1 : coming;
            const [grown, corrected, added] = [part(fraction, 0, 0.25), part(fraction, 0.3, 0.65), part(fraction, 0.7, 0.9)];
            const svg = drawing(500, TABLE + 16 + (second === 0 ? 1 : 3) * 28, 'The scores of “bank” as they come, their exponentials, and the state');
            svg.append(
                text(SCORES, 12, 'scores', 'start'), text(EXPONENTIALS, 12, 'exp(score − m)', 'start'), text(VALUES, 12, 'values'),
            );
            const workers = [row.slice(0, Math.min(split - 1, done)), row.slice(split - 1, done)];
            const states = workers.map(absorb);
            const worker = coming + 1 < split ? 0 : 1;
            const [old, next] = [0, 1].map(more => absorb(seenBy(row, split, coming, coming + more)).max);
            const isRise = seen > 0 && next > old && Number.isFinite(old);
            // Each worker has a maximum of its own. That of the coming key's worker moves.
            const maxima = states.map(({ max }) => max);
            if (seen > 0) {
                maxima[worker] = Number.isFinite(old) ? old + corrected * (next - old) : next;
            }
            row.forEach(({ token, score, value }, j) => {
                const y = TOP + ROW * j;
                const of = j + 1 < split ? 0 : 1;
                const colour = `var(--fig-${1 + of})`;
                const isComing = seen > 0 && j === coming;
                const isSeen = j < coming && seen > 0 || isComing;
                const share = isSeen ? isComing ? grown : 1 : 1;
                const bar = (left, length, attributes) => svg.append(shape('rect', {
                    x: left, y: y + 5, width: length.toFixed(2), height: ROW - 10, ...attributes,
                }));
                svg.append(text(SCORES - 8, y + ROW / 2, token, 'end', isSeen ? 'var(--fig-fg)' : 'var(--fig-muted)'));
                const length = WIDTH * score / MOST;
                bar(SCORES, isSeen ? length * share : length, isSeen ? { fill: colour } : { fill: 'none', stroke: 'var(--fig-muted)', 'stroke-dasharray': '2 4' });
                svg.append(text(SCORES + WIDTH + 46, y + ROW / 2, number(score, 2), 'end', isSeen ? 'var(--fig-fg)' : 'var(--fig-muted)'));
                svg.append(text(VALUES, y + ROW / 2, told(value), 'middle', isSeen ? 'var(--fig-fg)' : 'var(--fig-muted)'));
                if (!isSeen || (isComing && added === 0)) {
                    return;
                }
                const now = Math.exp(score - maxima[of]);
                // What it was before the new maximum is outlined.
                if (isRise && of === worker && !isComing) {
                    bar(EXPONENTIALS, WIDTH * Math.exp(score - old), { fill: 'none', stroke: colour, 'stroke-dasharray': '4 3' });
                }
                bar(EXPONENTIALS, WIDTH * now * (isComing ? added : 1), { fill: colour });
                const last = isRise && of === worker && !isComing ? Math.max(now, Math.exp(score - old)) : now;
                svg.append(text(EXPONENTIALS + WIDTH * last + 8, y + ROW / 2, number(now, 3), 'start'));
            });
            maxima.forEach((max, of) => {
                const [from, to] = of === 0 ? [0, Math.min(split - 1, 6)] : [split - 1, 6];
                if (Number.isFinite(max) && to > from) {
                    const at = SCORES + WIDTH * max / MOST;
                    svg.append(shape('line', {
                        x1: at, x2: at, y1: TOP + ROW * from, y2: TOP + ROW * to, stroke: 'var(--fig-fg)', 'stroke-width': 2, 'stroke-dasharray': '6 4',
                    }));
                    svg.append(text(at, TOP + ROW * from - 8, 'm'));
                }
            });
            const factor = Math.exp(old - next);
            const line = TOP + 6 * ROW + 20;
            if (isRise) {
                svg.append(text(12, line, `new maximum: ℓ and o × α, with α = exp(${number(old, 2)} − ${number(next, 2)}) = ${number(factor, 3)}`, 'start', 'var(--fig-2)'));
            } else if (Number.isFinite(old) && seen > 0) {
                svg.append(text(12, line, 'no new maximum: α = 1, nothing to rescale', 'start', 'var(--fig-muted)'));
            }
            // While a key comes, the sums have what they had, corrected as far as the bars are.
            const shownStates = states.map(({ sum, values, output }, of) => {
                if (seen === 0 || of !== worker || done > coming) {
                    return { max: maxima[of], sum, values, output };
                }
                const { score, value } = row[coming];
                const scale = Number.isFinite(old) ? Math.exp(old - maxima[of]) : 1;
                const own = added * Math.exp(score - maxima[of]);
                const [sums, weighted] = [sum * scale + own, values * scale + own * value];
                return { max: maxima[of], sum: sums, values: weighted, output: weighted / sums };
            });
            const merged = states[0].merge(states[1]);
            const isSplit = split <= done;
            const lines = isSplit
                ? [['first', shownStates[0]], ['second', shownStates[1]], ['merged', merged]] : [['state', shownStates[0]]];
            ['m, largest', 'ℓ, sum', 'o, weighted', 'o / ℓ, output'].forEach((name, c) => svg.append(text(112 + 108 * c, TABLE, name, 'middle', 'var(--fig-muted)')));
            lines.forEach(([name, of], l) => {
                const y = TABLE + 28 * (l + 1);
                svg.append(text(12, y, name, 'start'));
                [told(of.max), told(of.sum), told(of.values), mean(of)].forEach((words, c) => svg.append(text(112 + 108 * c, y, words)));
            });
            const whole = entries(all.output)(BANK, 0);
            const rise = `“${row[coming].token}” brings ${isRise ? `a new maximum, so ℓ and o are first multiplied by α = ${number(factor, 3)}, which leaves o / ℓ as it is`
                : 'no new maximum, so nothing is rescaled'}`;
            const after = `After ${done} of 6 keys: m = ${told(merged.max)}, ℓ = ${told(merged.sum)}, o = ${told(merged.values)}, o / ℓ = ${mean(merged)}.`;
            return {
                svg,
                says: done === 6 ? `${after} That is the first number of the row's output, ${told(whole)}.`
                    : done === 0 && seen === 0 ? after
                        : `${done > coming ? `${after} ` : ''}${Number.isFinite(old) ? `${rise}. Then its own exponential is added.` : `“${row[coming].token}” comes first.`}`,
            };
        },
    };
};
