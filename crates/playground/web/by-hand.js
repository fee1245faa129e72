// Rows to be computed by hand. The crate computes them, too, once right and once with each slip that people make, so that a wrong answer can
// be told where it comes from.
import { choice, slider, words } from './figure.js';
import { drawing, heatMap } from './draw.js';

/** Whole numbers from `least` to `most`, the same for the same seed. */
const draws = (seed, count, least, most) => {
    let state = seed * 2654435769 + 1;
    return Array.from({ length: count }, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return least + Math.floor(state / 2 ** 32 * (most - least + 1));
    });
};

/** '0.5 1/2 0,5' as three numbers. */
const numbers = answer => answer.replaceAll('−', '-').replaceAll(',', '.').split(/[\s;]+/u).filter(Boolean).map(word => {
    const [above, below = 1] = word.split('/').map(Number);
    return above / below;
});

const EXACT = 0.006; // two digits, rounded

/** What is said of an answer: `slips` are pairs of numbers and words. */
const judge = (answer, right, slips) => {
    const typed = numbers(answer);
    const same = expected => expected.every((value, i) => Math.abs(value - typed[i]) < EXACT);
    if (typed.length === 0) {
        return '';
    }
    if (typed.length !== right.length || typed.some(Number.isNaN)) {
        return `Type ${right.length} numbers with blanks between them, each with two digits behind the point.`;
    }
    if (same(right)) {
        return 'Right. Draw another one?';
    }
    const slip = slips.find(([values]) => same(values));
    const places = typed.map((value, i) => Math.abs(value - right[i]) < EXACT ? 0 : i + 1).filter(Boolean);
    return slip ? `No: ${slip[1]}` : `No: look again at number ${places.join(' and ')}.`;
};

/** The weights of one query over three keys of width 2. The first problem is that of the page. */
const row = (attention, { first }) => ({
    controls: [
        slider('draw', 'problem', 0, 20, 1, 0, 0),
        words('answer', 'three weights', 30, ''),
    ],
    draw({ draw, answer }) {
        const all = draw === 0 ? first.split(' ').map(Number) : draws(draw, 8, -2, 2);
        const matrix = values => new attention.Matrix(values.length / 2, 2, new Float64Array(values));
        const keys = matrix(all.slice(2));
        const attend = factor => {
            const { scores, weights } = new attention.Attention(matrix(all.slice(0, 2).map(entry => entry * factor)), keys, keys, attention.Mask.none());
            return { scores: [...scores.entries], weights: [...weights.entries] };
        };
        const { scores, weights } = attend(1);
        const svg = drawing(300, 280, 'A query and three keys');
        heatMap(svg, { left: 57, top: 32, rows: ['query', 'key 1', 'key 2', 'key 3'], columns: ['1', '2'], matrix: matrix(all), full: 2, digits: 0 });
        const exponentials = scores.map(Math.exp);
        const says = judge(answer, weights, [
            [attend(Math.SQRT2).weights, 'these are the weights without the scale. Divide the dot products by √2 first.'],
            [attend(Math.SQRT1_2).weights, 'you divided by the width. Divide by its square root.'],
            [scores, 'these are the scores. Softmax comes next.'],
            [exponentials, 'these are the exponentials. Divide them by their sum.'],
        ]);
        return { svg, says: says || 'How much weight does the query give to each key? Type three numbers.' };
    },
});

/** What two new tokens see of a cache: the outputs of the last two of five or six tokens, all scores being equal. */
const cached = attention => ({
    controls: [
        slider('draw', 'problem', 0, 20, 1, 0, 0),
        choice('mask', 'mask', ['causal', 'window of 2', 'window of 3']),
        words('answer', 'two outputs', 30, ''),
    ],
    draw({ draw, mask, answer }) {
        const count = 4 + draw % 3;
        const values = draw === 0 ? [0, 1, 2, 3] : draws(draw, count, 0, 9);
        const zeros = rows => new attention.Matrix(rows, 1, new Float64Array(rows));
        const v = new attention.Matrix(count, 1, new Float64Array(values));
        const attend = (queries, rule) => [...new attention.Attention(zeros(queries), zeros(count), v, rule).output.entries];
        const rule = width => width ? attention.Mask.window(width).and(attention.Mask.causal()) : attention.Mask.causal();
        const width = mask && mask + 1;
        const right = attend(2, rule(width));
        const svg = drawing(410, 110, 'The values of all tokens');
        const labels = values.map((_, i) => i < count - 2 ? `old ${i + 1}` : `new ${i - count + 3}`);
        heatMap(svg, { left: 57, top: 32, rows: ['value'], columns: labels, matrix: new attention.Matrix(1, count, new Float64Array(values)), full: 9, digits: 0 });
        const slips = [
            [attend(count, rule(width)).slice(0, 2), 'this mask starts in the top left corner. The last query stands at the last key.'],
            [attend(2, attention.Mask.none()), 'this is without a mask. The first new token may not see the second.'],
        ];
        if (width) {
            slips.push([attend(2, rule(width + 1)), 'this window is too wide by one. It counts the token itself.']);
            slips.push([attend(2, rule(width - 1)), 'this window is too narrow by one. It counts the token itself.']);
        }
        const says = judge(answer, right, slips);
        return { svg, says: says || 'All scores are equal. What do the two new tokens get? Type two numbers.' };
    },
});

export default (attention, dataset) => (dataset.kind === 'cached' ? cached : row)(attention, dataset);
