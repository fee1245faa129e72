// One row of scores that comes key by key, in any order, by one worker or by two whose states are merged.
import { choice, number, slider } from './figure.js';
import { bars, drawing, entries, text } from './draw.js';

const BANK = 5;
const ORDERS = ['as in the sentence', 'backwards', 'rising', 'falling'];

export const online = attention => {
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
    return {
        controls: [
            choice('order', 'order of the keys', ORDERS),
            slider('seen', 'keys seen', 0, 6, 1, 3, 0),
            slider('split', 'second worker from key (7: none)', 1, 7, 1, 7, 0),
        ],
        draw({ order, seen, split }) {
            const row = inOrder[order].slice(0, seen);
            const parts = [row.slice(0, split - 1), row.slice(split - 1)].map(absorb);
            const state = parts[0].merge(parts[1]);
            const svg = drawing(620, 330, 'The scores of “bank”, as they come, and the state');
            svg.append(text(80, 14, 'scores as they come', 'start'), text(80, 252, 'o sums the first number of each value:', 'start'));
            keys.forEach(({ token, value }, j) => svg.append(text(80 + 92 * j, 276, token), text(80 + 92 * j, 298, told(value))));
            inOrder[order].forEach(({ token, score }, j) => bars(svg, {
                left: 80, top: 28 + 34 * j, width: 240, row: 34, most: 5, labels: [token], values: [score],
                colour: () => j >= seen ? 'var(--fig-muted)' : j + 1 < split ? 'var(--fig-1)' : 'var(--fig-2)',
            }));
            const lines = ['m', 'ℓ', 'o', 'o / ℓ'];
            const columns = split <= seen ? [parts[0], parts[1], state] : [state];
            const names = columns.length === 1 ? ['state'] : ['first', 'second', 'merged'];
            columns.forEach((of, c) => {
                const place = 440 + 70 * c;
                svg.append(text(place, 60, names[c]));
                [told(of.max), told(of.sum), told(of.values), mean(of)].forEach((words, i) => svg.append(text(place, 96 + 34 * i, words)));
            });
            lines.forEach((name, i) => svg.append(text(392, 96 + 34 * i, name, 'end')));
            const whole = entries(all.output)(BANK, 0);
            return {
                svg,
                says: `After ${seen} of 6 keys: m = ${told(state.max)}, ℓ = ${told(state.sum)}, o = ${told(state.values)}, o / ℓ = `
                    + `${mean(state)}. ${seen === 6 ? 'That is' : 'In the end it will be'} the whole row's output, ${told(whole)}.`,
            };
        },
    };
};
