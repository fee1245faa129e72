// One row's sum of exponentials, with few digits, cut into parts in two ways. Each part adds its own keys, one after the other, at the same
// time as the other parts; then the parts are added. A sum that is rounded after each step depends on the cut.
import { choice, time } from './figure.js';
import { drawing, entries, shape, text } from './draw.js';

const BANK = 5;
const KEYS = 6;
const DIGITS = 3;
const CUTS = ['in one part', ...[1, 2, 3, 4, 5].map(keys => `cut after ${keys}`)];
const [LEFT, CELL, TOP, LANE] = [12, 82, 58, 196];

/** Rounded to three decimal digits as a processor rounds to its bits: to the nearest, and from the middle to the even digit. */
const rounded = x => {
    if (x === 0) {
        return 0;
    }
    const unit = 10 ** (Math.floor(Math.log10(x)) - DIGITS + 1);
    const units = Number((x / unit).toFixed(6)); // a sum of decimals, which the machine's own digits miss by a little
    const whole = Math.floor(units);
    const isUp = units - whole > 0.5 || (units - whole === 0.5 && whole % 2 === 1);
    return Number(((whole + isUp) * unit).toPrecision(DIGITS));
};
/** With all its digits, also the zeros at its end. */
const told = (x, more = 0) => x === 0 ? '0' : x.toPrecision(DIGITS + more);

/** The additions of a lane, step by step: for each key that comes, and at the end for the parts. */
const additions = (numbers, cut) => {
    const ranges = cut === 0 ? [[0, KEYS]] : [[0, cut], [cut, KEYS]];
    const sums = ranges.map(() => []);
    ranges.forEach(([first, end], part) => {
        let sum = 0;
        for (let j = first; j < end; j += 1) {
            const before = sum;
            sum = rounded(before + numbers[j]);
            sums[part].push({ key: j, before, sum });
        }
    });
    const ends = sums.map(steps => steps.at(-1).sum);
    return { ranges, sums, ends, sum: ends.length === 1 ? ends[0] : rounded(ends[0] + ends[1]) };
};

export default attention => {
    const { tokens, x } = attention.Sentence.river();
    const [q, k, v] = attention.projections().map(w => attention.project(x, w));
    const all = new attention.Attention(q, k, v, attention.Mask.none());
    const at = entries(all.scores);
    const exponentials = row => {
        const scores = tokens.map((_, j) => at(row, j));
        const largest = Math.max(...scores);
        return scores.map(score => Math.exp(score - largest));
    };
    return {
        controls: [
            choice('row', 'row', tokens.map((token, i) => i === 3 ? 'the (again)' : token), BANK),
            time('steps', 'additions', KEYS + 1, KEYS + 1, { seconds: 14 }),
            choice('first', 'first way', CUTS, 0),
            choice('second', 'second way', CUTS, 3),
        ],
        draw({ row, steps, first, second }) {
            const exact = exponentials(row);
            const numbers = exact.map(value => rounded(value));
            const done = Math.floor(steps + 1e-9);
            const fraction = steps - done;
            const ways = [first, second].map(cut => additions(numbers, cut));
            const svg = drawing(2 * LEFT + KEYS * CELL, TOP + 2 * LANE + 4, `The exponentials of the row of “${tokens[row]}”, added in two orders`);
            tokens.forEach((token, j) => svg.append(text(LEFT + CELL * (j + 0.5), 12, token, 'middle', 'var(--fig-muted)')));
            ways.forEach((way, lane) => {
                const top = TOP + LANE * lane;
                svg.append(text(LEFT, top - 22, `${lane === 0 ? 'first way' : 'second way'}: ${CUTS[[first, second][lane]]}`, 'start', `var(--fig-${1 + lane})`));
                way.ranges.forEach(([begin, end], part) => {
                    const colour = `var(--fig-${1 + lane})`;
                    for (let j = begin; j < end; j += 1) {
                        const place = j - begin;
                        const isAdded = place < done;
                        const isMoving = place === done && fraction > 0;
                        const x0 = LEFT + CELL * j + (part === 1 ? 5 : 0);
                        const width = CELL - 7;
                        svg.append(
                            shape('rect', { x: x0, y: top, width, height: 34, fill: colour, 'fill-opacity': isAdded || isMoving ? 0.3 : 0.08, stroke: colour, 'stroke-opacity': isMoving ? 1 : 0.3 }),
                            text(x0 + width / 2, top + 17, told(numbers[j])),
                        );
                        // A number on its way into the part's sum.
                        if (isMoving) {
                            const target = LEFT + CELL * (begin + 0.5);
                            const from = x0 + width / 2;
                            svg.append(text(from + (target - from) * fraction, top + 34 + 36 * fraction, told(numbers[j]), 'middle', colour));
                        }
                    }
                    const made = way.sums[part].slice(0, Math.min(done, end - begin));
                    const left = LEFT + CELL * begin + (part === 1 ? 5 : 0);
                    const last = made.at(-1);
                    svg.append(
                        shape('path', { d: `M${left},${top + 48}h${CELL * (end - begin) - 12}`, stroke: colour, 'stroke-width': 2 }),
                        text(left, top + 72, last ? `sum ${told(last.sum)}` : 'sum 0', 'start'),
                    );
                    const word = made.length > 1 ? `${told(last.before)} + ${told(numbers[last.key])} = ${told(last.before + numbers[last.key], 2)}` : '';
                    // In a part of one key there is no room, and nothing was rounded.
                    if (end - begin > 2) {
                        svg.append(text(left, top + 96, word, 'start', 'var(--fig-muted)'));
                    }
                });
                const isWhole = way.ranges.length === 1 ? done >= KEYS : done > KEYS;
                const words = way.ranges.length === 1 ? '' : `${told(way.ends[0])} + ${told(way.ends[1])} = ${told(way.ends[0] + way.ends[1], 2)}`;
                if (isWhole) {
                    const other = told(ways[1 - lane].sum);
                    const mine = told(way.sum);
                    const parting = [...mine].findIndex((letter, i) => letter !== other[i]);
                    const result = text(LEFT + KEYS * CELL, top + 128, '', 'end');
                    result.append(`${words === '' ? 'result ' : `${words}, rounded `}`);
                    const [same, differs] = parting < 0 || done <= KEYS ? [mine, ''] : [mine.slice(0, parting), mine.slice(parting)];
                    result.append(same, shape('tspan', { fill: `var(--fig-${1 + lane})`, 'font-weight': 700, 'text-decoration': 'underline' }, differs));
                    svg.append(result);
                }
            });
            const [one, other] = ways.map(way => told(way.sum));
            const right = String(Number(numbers.reduce((a, b) => a + b).toFixed(6)));
            const name = tokens[row];
            return {
                svg,
                says: done > KEYS
                    ? one === other ? `Both orders give ${one} for “${name}”. Without rounding the sums it would be ${right}.`
                        : `The same six numbers, ${one} in one order and ${other} in the other. Without rounding the sums it would be ${right}.`
                    : done === KEYS ? 'All keys are added. A row that was cut still has to add its two parts.'
                        : done === 0 ? `The six exponentials of the row of “${name}”, rounded to ${DIGITS} digits. Each sum will be rounded to ${DIGITS} digits, too.`
                            : `Each part has added ${done} ${done === 1 ? 'key' : 'keys'}, and rounded ${done === 1 ? 'nothing yet' : 'each sum'}.`,
            };
        },
    };
};
