// One word of the running example looks at all others: products, weights and what comes out.
import { choice, number, slider } from './figure.js';
import { bars, drawing, entries, text } from './draw.js';

const BANK = 5;

export const bank = attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const start = entries(sentences[0].x);
    const vector = dimensions.map((name, j) => slider(name, `“bank”: ${name}`, -2, 3, 0.1, start(BANK, j)));
    const words = sentences[0].tokens.map((token, i) => token === 'boat' || token === 'river'
        ? `${token} / ${sentences[1].tokens[i]}` : token);
    return {
        controls: [
            choice('sentence', 'sentence', sentences.map(sentence => sentence.tokens.join(' '))),
            choice('word', 'the word that looks', words.map((word, i) => `${i + 1}. ${word}`), BANK),
            ...vector,
        ],
        draw(state) {
            const { tokens, x } = sentences[state.sentence];
            const columns = dimensions.length;
            const numbers = x.entries;
            dimensions.forEach((name, j) => { numbers[BANK * columns + j] = state[name]; });
            const changed = new attention.Matrix(tokens.length, columns, numbers);
            const result = new attention.Attention(changed, changed, changed, attention.Mask.none());
            const [scores, weights, output] = [result.scores, result.weights, result.output].map(entries);
            const row = tokens.map((_, j) => j);
            const svg = drawing(600, 400, `How “${tokens[state.word]}” shares its attention`);
            svg.append(
                text(80, 14, 'scores', 'start'), text(360, 14, 'weights', 'start'),
                text(80, 246, `what “${tokens[state.word]}” becomes`, 'start'),
            );
            const values = row.map(j => scores(state.word, j));
            const most = Math.max(...values.map(Math.abs), 1);
            const blue = () => 'var(--fig-1)';
            bars(svg, { left: 80, top: 28, width: 130, row: 32, most, labels: tokens, values, signed: true, colour: blue });
            const shares = row.map(j => weights(state.word, j));
            bars(svg, { left: 360, top: 28, width: 180, row: 32, most: 1, labels: tokens, values: shares, colour: blue });
            const out = dimensions.map((_, j) => output(state.word, j));
            const longest = Math.max(2.5, ...out.map(Math.abs));
            bars(svg, {
                left: 80, top: 260, width: 360, row: 32, most: longest, labels: dimensions, values: out, signed: true,
                colour: () => 'var(--fig-2)',
            });
            const largest = shares.indexOf(Math.max(...shares));
            const parts = dimensions.map((name, j) => `${name} ${number(out[j], 2)}`);
            return {
                svg,
                says: `“${tokens[state.word]}” gives most to “${tokens[largest]}”, ${number(100 * shares[largest], 0)} %, `
                    + `and becomes ${parts.join(', ')}.`,
            };
        },
    };
};
