// A warp reads a column of a tile in shared memory: which banks does it ask, and how long does that take?
import { choice, rare, slider } from './figure.js';
import { drawing, shape, text } from './draw.js';

const BANKS = 32;
const ROWS = [8, 32];
const WIDTHS = [16, 32, 64, 128];
const WORDS = [1, 4];
const [LEFT, TOP, CELL] = [56, 36, 13];

export default attention => ({
    controls: [
        choice('rows', 'rows that a warp reads', ['8, four lanes each', '32, one lane each']),
        rare(choice('width', 'width of the tile in words', WIDTHS.map(String), 2)),
        slider('padding', 'padding in words', 0, 8, 1, 0, 0),
        rare(choice('swizzle', 'swizzle', ['no', 'yes'])),
        rare(choice('words', 'words a lane', WORDS.map(String))),
    ],
    draw(state) {
        const [rows, words] = [ROWS[state.rows], WORDS[state.words]];
        if (state.padding % words !== 0) {
            throw new Error('A load of four words has to begin at a multiple of four: choose a padding of 0, 4 or 8.');
        }
        const load = new attention.BankLoad(rows, WIDTHS[state.width], state.padding, state.swizzle === 1, words);
        const lanes = BANKS / rows;
        const firsts = [...load.banks].filter((_, lane) => lane % lanes === 0);
        const height = 320 / rows;
        const svg = drawing(480, 364, 'The banks that each row is read from');
        svg.append(text(LEFT, 10, 'banks', 'start'), text(6, TOP + 10, 'row', 'start'));
        for (const bank of [0, 8, 16, 24]) {
            svg.append(text(LEFT + CELL * (bank + 0.5), 26, String(bank)));
        }
        svg.append(shape('rect', {
            x: LEFT, y: TOP, width: CELL * BANKS, height: 320, fill: 'none', stroke: 'var(--fig-muted)', 'stroke-opacity': 0.5,
        }));
        svg.append(shape('path', {
            d: Array.from({ length: BANKS - 1 }, (_, bank) => `M${LEFT + CELL * (bank + 1)},${TOP}v320`).join(''), stroke: 'var(--fig-muted)', 'stroke-opacity': 0.2,
        }));
        const asked = Array(BANKS).fill(0);
        firsts.forEach(first => Array.from({ length: words }, (_, word) => { asked[(first + word) % BANKS] += 1; }));
        const most = Math.max(...asked);
        firsts.forEach((first, row) => {
            for (let word = 0; word < words; word += 1) {
                const bank = (first + word) % BANKS;
                svg.append(shape('rect', {
                    x: LEFT + CELL * bank + 1, y: TOP + height * row + 1, width: CELL - 2, height: height - 2,
                    fill: asked[bank] > 1 ? 'var(--fig-2)' : 'var(--fig-1)',
                }));
            }
            if (rows === 8 || row % 8 === 0) {
                svg.append(text(LEFT - 8, TOP + height * (row + 0.5), String(row), 'end'));
            }
        });
        const { clocks } = load;
        svg.append(text(LEFT + CELL * BANKS, 10, `${clocks} clock${clocks === 1 ? '' : 's'}`, 'end', clocks === 1 ? 'var(--fig-1)' : 'var(--fig-2)'));
        return {
            svg,
            says: `The load takes ${clocks} clock${clocks === 1 ? '' : 's'}. ${words === 1 ? '' : 'It is served in halves or quarters of the warp. '}Bank ${asked.indexOf(most)} is asked for ${most} different `
                + `word${most === 1 ? '' : 's'}${most > 1 && words === 1 ? ', and gives one a clock' : ''}.`,
        };
    },
});
