// Two sentences, and how one word shares its attention in each: the word under the pointer looks.
import { choice, number } from './figure.js';
import { drawing, entries, shape, text } from './draw.js';

const [FIRST, APART, SENTENCE, LINE] = [42, 78, 172, 104];
const [RIGHT, BAR] = [540, 56]; // where the bars begin, and how long one is for 1
const NAMES = ['By the river', 'In the city'];

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()].map(({ tokens, x }) => {
        const { weights, output } = new attention.Attention(x, x, x, attention.Mask.none());
        return { tokens, before: entries(x), weights: entries(weights), after: entries(output) };
    });
    const dimensions = attention.dimensions();
    const words = sentences[0].tokens.map((token, i) => token === sentences[1].tokens[i] ? token : `${token} / ${sentences[1].tokens[i]}`);
    return {
        isPlain: true,
        controls: [choice('word', 'the word that looks', words.map((word, i) => `${i + 1}. ${word}`), 5)],
        draw({ word }, set) {
            const svg = drawing(640, 2 * SENTENCE, `Where “${words[word]}” looks in two sentences`);
            const x = j => FIRST + APART * j;
            const says = sentences.map(({ tokens, before, weights, after }, s) => {
                const line = LINE + SENTENCE * s;
                const shares = tokens.map((_, j) => weights(word, j));
                shares.map((share, j) => [share, j]).sort(([a], [b]) => a - b).forEach(([share, j]) => {
                    const [from, to] = j === word ? [x(j) - 14, x(j) + 14] : [x(word) + 6 * (j - word), x(j)];
                    const high = (j === word ? 36 : 24 * Math.abs(word - j)) * 0.9;
                    svg.append(shape('path', {
                        d: `M${from},${line}C${from},${line - 1.2 * high},${to},${line - 1.2 * high},${to},${line}`, fill: 'none',
                        stroke: 'var(--fig-1)', 'stroke-width': (1 + 24 * share).toFixed(2), 'stroke-opacity': (0.3 + 0.7 * share).toFixed(3),
                    }));
                });
                tokens.forEach((token, j) => {
                    const group = shape('g', { class: 'press' },
                        shape('rect', {
                            x: x(j) - 37, y: line + 2, width: 74, height: 34, rx: 4, fill: 'var(--fig-heat)',
                            'fill-opacity': (0.06 + 0.94 * shares[j]).toFixed(3), stroke: j === word ? 'var(--fig-fg)' : 'none', 'stroke-width': 2,
                        }),
                        shape('text', { x: x(j), y: line + 19, dy: '0.35em', 'text-anchor': 'middle', 'font-size': 20 }, token),
                        text(x(j), line + 50, `${number(100 * shares[j], 0)} %`));
                    ['pointerenter', 'click'].forEach(name => group.addEventListener(name, () => set({ word: j }, true)));
                    svg.append(group);
                });
                // Water and money: what the word becomes, and dashed what it was.
                svg.append(text(RIGHT - 44, line - 34, `“${tokens[word]}” becomes`, 'start'));
                [0, 1].forEach(d => {
                    const y = line - 14 + 26 * d;
                    svg.append(
                        text(RIGHT - 4, y + 9, dimensions[d], 'end'),
                        shape('rect', { x: RIGHT, y, width: (BAR * after(word, d)).toFixed(2), height: 18, fill: `var(--fig-${2 + d})` }),
                        shape('rect', { x: RIGHT, y, width: (BAR * before(word, d)).toFixed(2), height: 18, fill: 'none', stroke: 'var(--fig-fg)', 'stroke-dasharray': '3 3' }),
                    );
                });
                const [most, next] = shares.map((share, j) => [share, j]).sort(([a], [b]) => b - a);
                const told = ([share, j]) => `${number(100 * share, 0)} % from ${j === word ? 'itself' : `“${tokens[j]}”`}`;
                return `${NAMES[s]}, “${tokens[word]}” takes ${told(most)} and ${told(next)}.`;
            });
            return { svg, says: says.join(' ') };
        },
    };
};
