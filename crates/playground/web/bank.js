// One word looks at all others, in two sentences side by side: its weights, and what becomes of it.
import { choice, number, rare, slider, time } from './figure.js';
import { bars, drawing, entries, shape, text } from './draw.js';

const BANK = 5;
const LEFTS = [70, 370]; // of the two sentences

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const start = entries(sentences[0].x);
    const vector = dimensions.map((name, j) => (j < 2 ? control => control : rare)(slider(name, `“bank”: ${name}`, -2, 3, 0.1, start(BANK, j))));
    const words = sentences[0].tokens.map((token, i) => token === sentences[1].tokens[i] ? token : `${token} / ${sentences[1].tokens[i]}`);
    return {
        controls: [
            choice('word', 'the word that looks', words.map((word, i) => `${i + 1}. ${word}`), BANK), ...vector,
            time('met', 'words met', words.length, words.length, { seconds: 9 }),
        ],
        draw(state) {
            const svg = drawing(600, 416, `How “${words[state.word]}” shares its attention in two sentences`);
            const says = sentences.map(({ tokens, x }, s) => {
                const left = LEFTS[s];
                const numbers = x.entries;
                dimensions.forEach((name, j) => { numbers[BANK * dimensions.length + j] = state[name]; });
                const changed = new attention.Matrix(tokens.length, dimensions.length, numbers);
                const result = new attention.Attention(changed, changed, changed, attention.Mask.none());
                const [weights, output] = [result.weights, result.output].map(entries);
                const shares = tokens.map((_, j) => weights(state.word, j));
                // Word after word hands over its share. At the end there is the whole average.
                const met = tokens.map((_, j) => Math.min(Math.max(state.met - j, 0), 1));
                const given = entries(changed);
                const out = dimensions.map((_, d) => state.met === tokens.length ? output(state.word, d)
                    : shares.reduce((sum, share, j) => sum + met[j] * share * given(j, d), 0));
                svg.append(
                    text(left, 14, `“${tokens[state.word]}” ${s === 0 ? 'by the river' : 'in the city'}: its weights`, 'start'),
                    text(left, 256, `what “${tokens[state.word]}” becomes ${s === 0 ? 'by the river' : 'in the city'}`, 'start'),
                );
                bars(svg, {
                    left, top: 28, width: 170, row: 32, most: 1, labels: tokens, values: shares,
                    colour: j => met[j] === 1 ? 'var(--fig-1)' : `color-mix(in srgb, var(--fig-1) ${Math.round(25 + 75 * met[j])}%, var(--fig-bg))`,
                });
                // The share on its way down.
                const coming = met.findIndex(part => part > 0 && part < 1);
                if (coming >= 0) {
                    const [from, to] = [28 + 32 * coming + 4, 270];
                    svg.append(shape('rect', {
                        x: left, y: (from + (to - from) * met[coming]).toFixed(1), width: Math.max(170 * shares[coming], 1).toFixed(1), height: 24,
                        fill: 'var(--fig-2)', 'fill-opacity': (1 - met[coming]).toFixed(2),
                    }));
                }
                const most = Math.max(2.5, ...out.map(Math.abs));
                bars(svg, {
                    left, top: 270, width: 170, row: 32, most, labels: dimensions, values: out, signed: out.some(x => x < 0), colour: () => 'var(--fig-2)',
                });
                if (state.met < tokens.length) {
                    return `In “${tokens.join(' ')}”, “${tokens[state.word]}” has met ${Math.floor(state.met)} of ${tokens.length} words.`;
                }
                const largest = shares.indexOf(Math.max(...shares));
                const parts = dimensions.map((name, j) => `${name} ${number(out[j], 2)}`);
                return `In “${tokens.join(' ')}”, “${tokens[state.word]}” gives most to “${tokens[largest]}”, ${number(100 * shares[largest], 0)} %, `
                    + `and becomes ${parts.join(', ')}.`;
            });
            return { svg, says: says.join(' ') };
        },
    };
};
