// One word looks at all others, in two sentences side by side: its weights, and what becomes of it.
import { choice, number, rare, slider } from './figure.js';
import { bars, drawing, entries, text } from './draw.js';

const BANK = 5;
const LEFTS = [70, 370]; // of the two sentences

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const start = entries(sentences[0].x);
    const vector = dimensions.map((name, j) => (j < 2 ? control => control : rare)(slider(name, `“bank”: ${name}`, -2, 3, 0.1, start(BANK, j))));
    const words = sentences[0].tokens.map((token, i) => token === sentences[1].tokens[i] ? token : `${token} / ${sentences[1].tokens[i]}`);
    return {
        controls: [choice('word', 'the word that looks', words.map((word, i) => `${i + 1}. ${word}`), BANK), ...vector],
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
                const out = dimensions.map((_, j) => output(state.word, j));
                svg.append(
                    text(left, 14, `“${tokens[state.word]}” ${s === 0 ? 'by the river' : 'in the city'}: its weights`, 'start'),
                    text(left, 256, `what “${tokens[state.word]}” becomes ${s === 0 ? 'by the river' : 'in the city'}`, 'start'),
                );
                bars(svg, { left, top: 28, width: 170, row: 32, most: 1, labels: tokens, values: shares, colour: () => 'var(--fig-1)' });
                const most = Math.max(2.5, ...out.map(Math.abs));
                bars(svg, {
                    left, top: 270, width: 170, row: 32, most, labels: dimensions, values: out, signed: out.some(x => x < 0), colour: () => 'var(--fig-2)',
                });
                const largest = shares.indexOf(Math.max(...shares));
                const parts = dimensions.map((name, j) => `${name} ${number(out[j], 2)}`);
                return `In “${tokens.join(' ')}”, “${tokens[state.word]}” gives most to “${tokens[largest]}”, ${number(100 * shares[largest], 0)} %, `
                    + `and becomes ${parts.join(', ')}.`;
            });
            return { svg, says: says.join(' ') };
        },
    };
};
