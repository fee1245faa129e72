// What the heads of two real models look at, and what the loss is without each. All of it was recorded; the page only looks it up.
import { arriving, choice, number, rare, slider } from './figure.js';
import { drawing, picture, shape, text } from './draw.js';

const MODELS = ['SmolLM2, causal', 'MiniLM, both ways'];
const LATE = ['tired', 'soft'];
/** What colours the grid: a score of the file, the weight of “it” on a noun of the sentence, or a loss of the file. */
const COLOURS = [
    { name: 'weight on the first token', score: 'first', told: 'the first token' },
    { name: 'weight on the token before', score: 'previous', told: 'the token before' },
    { name: 'induction', score: 'induction', told: 'what followed an earlier copy' },
    { name: 'weight on itself', score: 'itself', told: 'the token itself' },
    { name: '“it” → “cat”', noun: 'cat' },
    { name: '“it” → “mat”', noun: 'mat' },
    { name: 'loss without the head', loss: 'loss_without' },
    { name: 'loss with its mean output', loss: 'loss_replaced' },
];
const INDUCTION = COLOURS[2];

const WIDTH = 430; // a phone shows it at 5/6 of that
const [TOKENS, LINE, HIGH] = [26, 54, 28];
const GRID = { left: 56, top: 190, width: 372, height: 390 };

const percent = share => `${number(100 * share, 0)} %`;

/** A model of the file, with a function for the weights of each of its sentences; what a query can't see is undefined. */
const opened = model => ({
    ...model,
    sentences: model.sentences.map(({ tokens, weights }) => {
        const bytes = Uint8Array.from(atob(weights), letter => letter.charCodeAt(0));
        const n = tokens.length;
        const [ofHead, row] = model.reads_both_ways ? [n * n, i => n * i] : [n * (n + 1) / 2, i => i * (i + 1) / 2];
        return {
            tokens: tokens.map(token => token.trim()),
            weight: (block, head, i, j) =>
                model.reads_both_ways || j <= i ? bytes[ofHead * (block * model.heads + head) + row(i) + j] / 255 : undefined,
        };
    }),
});

/** What colours the head of a block: a function, or nothing where that was not recorded. */
const measure = (model, { tokens, weight }, { score, noun, loss }) => {
    if (noun) {
        return (block, head) => weight(block, head, tokens.indexOf('it'), tokens.indexOf(noun));
    }
    const recorded = loss ? model[loss] : model.scores[score];
    return recorded && ((block, head) => recorded[block][head]);
};

/** Where each token stands: in lines, as in a text. */
const laidOut = tokens => {
    let [left, top] = [0, TOKENS];
    return tokens.map(token => {
        const width = Math.max(50, 9 * token.length + 13);
        if (left + width > WIDTH) {
            [left, top] = [0, top + LINE];
        }
        const place = { x: left + 1, y: top, width: width - 4 };
        left += width;
        return place;
    });
};

const drawTokens = (svg, { tokens, weight }, [block, head], looker, choose) => {
    laidOut(tokens).forEach(({ x, y, width }, j) => {
        const share = weight(block, head, looker, j);
        const isUnseen = share === undefined;
        const token = shape('g', { class: 'press' },
            shape('rect', {
                x, y, width, height: HIGH, rx: 4, fill: 'var(--fig-heat)', 'fill-opacity': isUnseen ? 0 : (0.06 + 0.94 * share).toFixed(3),
                stroke: j === looker ? 'var(--fig-fg)' : 'none', 'stroke-width': 2,
            }),
            text(x + width / 2, y + HIGH / 2, tokens[j], 'middle', isUnseen ? 'var(--fig-muted)' : 'var(--fig-fg)'),
            text(x + width / 2, y + HIGH + 11, isUnseen ? '–' : percent(share), 'middle', isUnseen ? 'var(--fig-muted)' : 'var(--fig-fg)'));
        token.addEventListener('click', () => choose(j));
        svg.append(token);
    });
};

/** All heads, a row for each block, coloured by how far they are from `zero`; `value` may be missing. */
const drawGrid = (svg, { layers, heads }, { name, value, zero, unit }, [block, head], choose) => {
    const { left, top, width, height } = GRID;
    const [w, h] = [width / heads, height / layers];
    const entries = Array.from({ length: layers * heads }, (_, i) => value ? value(Math.floor(i / heads), i % heads) - zero : 0);
    const far = entries.map(Math.abs);
    const full = Math.max(...far);
    if (value) {
        const most = far.indexOf(full);
        const ends = `${zero ? `${unit(zero)} to ` : 'up to '}${unit(zero + entries[most])}`;
        svg.append(text(0, top - 42, `Colour: ${name}, ${ends} (head ${Math.floor(most / heads)}.${most % heads})`, 'start'));
        picture(svg, { left, top, width, height, matrix: { rows: layers, columns: heads, entries }, full });
    }
    const down = Array.from({ length: heads + 1 }, (_, j) => `M${(left + w * j).toFixed(2)} ${top}v${height}`);
    const across = Array.from({ length: layers + 1 }, (_, i) => `M${left} ${(top + h * i).toFixed(2)}h${width}`);
    svg.append(
        shape('path', { d: [...down, ...across].join(''), stroke: 'var(--fig-muted)', 'stroke-opacity': 0.3 }),
        text(left - 8, top - 14, 'head', 'end'),
    );
    for (let j = 0; j < heads; j += 1) {
        svg.append(text(left + w * (j + 0.5), top - 14, String(j)));
    }
    for (let i = 0; i < layers; i += layers > 10 ? 5 : 1) {
        svg.append(text(left - 8, top + h * (i + 0.5), i === 0 ? 'block 0' : String(i), 'end'));
    }
    const cells = shape('rect', { class: 'press', x: left, y: top, width, height, fill: 'none', 'pointer-events': 'all' });
    cells.addEventListener('click', ({ clientX, clientY }) => {
        const box = cells.getBoundingClientRect();
        const cell = (at, count) => Math.min(Math.max(Math.floor(at * count), 0), count - 1);
        choose(cell((clientY - box.top) / box.height, layers), cell((clientX - box.left) / box.width, heads));
    });
    svg.append(cells, shape('rect', {
        x: (left + w * head).toFixed(2), y: (top + h * block).toFixed(2), width: w.toFixed(2), height: h.toFixed(2),
        fill: 'none', stroke: 'var(--fig-fg)', 'stroke-width': 2.5, 'pointer-events': 'none',
    }));
};

const sentenceOf = (model, { tokens, weight }, [block, head], looker, colour, isRecorded) => {
    const row = tokens.map((_, j) => [weight(block, head, looker, j) ?? 0, j]).sort(([a], [b]) => b - a);
    const told = row.slice(0, 2).filter(([share]) => share >= 0.005)
        .map(([share, j]) => `${percent(share)}${j === row[0][1] ? ` of “${tokens[looker]}”` : ''} to ${j === looker ? 'itself' : `“${tokens[j]}”`}`);
    let says = `Head ${block}.${head} gives ${told.join(' and ')}`;
    const { score, told: what } = colour.score ? colour : INDUCTION;
    if (model.scores[score]) {
        const where = model.reads_both_ways ? 'in English paragraphs' : 'in random tokens said twice';
        says += `; ${where}, ${percent(model.scores[score][block][head])} to ${what}`;
    }
    says += '.';
    if (model.loss) {
        const [without, replaced] = [model.loss_without, model.loss_replaced].map(losses => number(losses[block][head], 2));
        says += ` Without it, the second reading's loss goes from ${number(model.loss, 2)} to ${without}; with its mean output, to ${replaced}.`;
    }
    return isRecorded ? says : `${says} The grid has no colour: this model doesn't predict the next token, so that wasn't recorded.`;
};

export default () => {
    const arrived = arriving('real-model', '../opened/figure.json', 'What was recorded', async answer => (await answer.json()).models.map(opened));
    return {
        controls: [
            choice('model', 'model', MODELS),
            rare(choice('colour', 'colour', COLOURS.map(({ name }) => name), 4)),
            slider('block', 'block', 0, 29, 1, 13, 0),
            slider('head', 'head', 0, 11, 1, 8, 0),
            slider('looker', 'the token that looks', 1, 13, 1, 8, 0),
            rare(choice('late', 'the late word', LATE)),
        ],
        draw(state, set, again) {
            const models = arrived(again);
            if (!models) {
                return { says: 'What was recorded is on its way.' };
            }
            const model = models[state.model];
            const sentence = model.sentences[state.late];
            const n = sentence.tokens.length;
            const chosen = [Math.min(state.block, model.layers - 1), Math.min(state.head, model.heads - 1)];
            // Words have the same numbers in both models: a token that one of them puts first comes last.
            const added = model.reads_both_ways ? 1 : 0;
            const looker = (Math.min(state.looker, n) - 1 + added) % n;
            const colour = COLOURS[state.colour];
            const value = measure(model, sentence, colour);

            const svg = drawing(WIDTH, GRID.top + GRID.height + 2, 'Recorded weights of the heads of a real model');
            svg.append(text(0, 12, `Where head ${chosen.join('.')} looks from the framed token`, 'start'));
            drawTokens(svg, sentence, chosen, looker, j => set({ looker: (j - added + n) % n + 1 }));
            const unit = colour.loss ? x => number(x, 2) : percent;
            const shown = { name: colour.name, value, zero: colour.loss ? model.loss : 0, unit };
            drawGrid(svg, model, shown, chosen, (block, head) => set({ block, head }));
            return {
                svg,
                says: sentenceOf(model, sentence, chosen, looker, colour, Boolean(value)),
                limits: { block: model.layers - 1, head: model.heads - 1, looker: n },
            };
        },
    };
};
