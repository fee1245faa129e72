// A sentence, and how each of its words shares its attention: the word under the pointer looks.
import { choice, number } from './figure.js';
import { drawing, entries, shape, text } from './draw.js';

const [FIRST, APART, LINE] = [50, 100, 124];

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const weights = sentences.map(({ x }) => entries(new attention.Attention(x, x, x, attention.Mask.none()).weights));
    return {
        isPlain: true,
        controls: [
            choice('sentence', 'sentence', sentences.map(({ tokens }) => tokens.join(' '))),
            choice('word', 'the word that looks', sentences[0].tokens.map((token, i) => `${i + 1}. ${token === sentences[1].tokens[i] ? token : `${token} / ${sentences[1].tokens[i]}`}`), 5),
        ],
        draw({ sentence, word }, set) {
            const { tokens } = sentences[sentence];
            const shares = tokens.map((_, j) => weights[sentence](word, j));
            const svg = drawing(600, 196, `Where “${tokens[word]}” looks`);
            const x = j => FIRST + APART * j;
            shares.forEach((share, j) => {
                const [from, to] = j === word ? [x(j) - 16, x(j) + 16] : [x(word) + 7 * (j - word), x(j)];
                const high = j === word ? 34 : 22 * Math.abs(word - j);
                svg.append(shape('path', {
                    d: `M${from},${LINE}C${from},${LINE - 1.3 * high},${to},${LINE - 1.3 * high},${to},${LINE}`, fill: 'none',
                    stroke: 'var(--fig-1)', 'stroke-width': (1 + 22 * share).toFixed(2), 'stroke-opacity': (0.25 + 0.75 * share).toFixed(3),
                }));
            });
            tokens.forEach((token, j) => {
                const group = shape('g', { class: 'press' },
                    shape('rect', {
                        x: x(j) - 46, y: LINE + 2, width: 92, height: 38, rx: 4, fill: 'var(--fig-heat)',
                        'fill-opacity': (0.06 + 0.94 * shares[j]).toFixed(3), stroke: j === word ? 'var(--fig-fg)' : 'none', 'stroke-width': 2,
                    }),
                    shape('text', { x: x(j), y: LINE + 21, dy: '0.35em', 'text-anchor': 'middle', 'font-size': 22 }, token),
                    text(x(j), LINE + 56, `${number(100 * shares[j], 0)} %`));
                ['pointerenter', 'click'].forEach(name => group.addEventListener(name, () => set({ word: j }, true)));
                svg.append(group);
            });
            const [most, next] = shares.map((share, j) => [share, j]).sort(([a], [b]) => b - a);
            const told = ([share, j]) => `${number(100 * share, 0)} % to ${j === word ? 'itself' : `“${tokens[j]}”`}`;
            return { svg, says: `“${tokens[word]}” gives ${told(most)} and ${told(next)}.` };
        },
    };
};
