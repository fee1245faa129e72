// The steps of attention under the roof of a machine: for which lengths and widths do they wait for memory?
import { choice, number, slider } from './figure.js';
import { drawing, shape, text } from './draw.js';

const WIDTHS = [16, 32, 64, 128, 256];
const [LEFT, TOP, WIDTH, HEIGHT] = [64, 14, 400, 290];
const X = [-5, 10]; // the least and the largest intensity, as powers of two
const x = intensity => LEFT + WIDTH * (Math.log2(intensity) - X[0]) / (X[1] - X[0]);
const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶';

export default (attention, { machines }) => {
    // From the page, where they come from the record and from data sheets: name, peak in GFLOP/s, bandwidth in GB/s.
    const all = machines.split(';').map(machine => machine.split('|'))
        .map(([name, peak, bandwidth]) => ({ name, peak: Number(peak), bandwidth: Number(bandwidth) }));
    return {
        controls: [
            choice('machine', 'machine', all.map(machine => machine.name)),
            slider('length', 'tokens: two to the', 4, 16, 1, 12, 0),
            choice('width', 'width of the head', WIDTHS.map(String), 2),
        ],
        draw(state) {
            const { name: machine, peak, bandwidth } = all[state.machine];
            const ridge = peak / bandwidth;
            const roof = intensity => Math.min(peak, bandwidth * intensity);
            const Y = [Math.floor(Math.log10(roof(2 ** X[0]))), Math.ceil(Math.log10(peak))]; // as powers of ten
            const y = speed => TOP + HEIGHT * (Y[1] - Math.log10(speed)) / (Y[1] - Y[0]);
            const tokens = 2 ** state.length;
            const bytes = machine.includes('bf16') ? 2 : 4;
            const steps = attention.RooflineStep.all(tokens, WIDTHS[state.width], bytes);
            const svg = drawing(480, 360, 'The roof of a machine and the steps of attention');
            for (let power = Y[0]; power <= Y[1]; power += 1) {
                svg.append(
                    shape('path', { d: `M${LEFT},${y(10 ** power)}H${LEFT + WIDTH}`, stroke: 'var(--fig-muted)', 'stroke-opacity': 0.25 }),
                    text(LEFT - 8, y(10 ** power), power === 0 ? '1' : power === 1 ? '10' : `10${SUPERSCRIPTS[power]}`, 'end'),
                );
            }
            for (let power = X[0] + 1; power <= X[1]; power += 3) {
                const words = power < 0 ? `1/${2 ** -power}` : String(2 ** power);
                svg.append(text(x(2 ** power), TOP + HEIGHT + 16, words));
            }
            svg.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 42, 'FLOP/byte'), text(LEFT + 8, TOP + 8, 'GFLOP/s', 'start'));
            const corners = [2 ** X[0], ridge, 2 ** X[1]].map(at => `${x(at).toFixed(1)},${y(roof(at)).toFixed(1)}`);
            svg.append(shape('polyline', { points: corners.join(' '), fill: 'none', stroke: 'var(--fig-1)', 'stroke-width': 2.5 }));
            // Names stand to the right of the slope and above the flat roof; steps in one place share a dot.
            const places = new Map();
            for (const { name, intensity } of [...steps].sort((a, b) => a.intensity - b.intensity)) {
                const at = x(intensity).toFixed(0);
                places.set(at, [...places.get(at) ?? [], { name, intensity }]);
            }
            let lastEnd = -Infinity;
            let up = 0;
            for (const group of places.values()) {
                const { intensity } = group[0];
                const [cx, cy] = [x(intensity), y(roof(intensity))];
                const names = group.map(({ name }) => name).join(', ');
                const fill = names === 'whole' ? 'var(--fig-2)' : 'var(--fig-3)';
                const isFlat = intensity >= ridge;
                const half = 4.2 * names.length;
                up = isFlat && cx - half < lastEnd ? up + 20 : 0;
                lastEnd = isFlat ? cx + half : lastEnd;
                if (up) {
                    svg.append(shape('path', { d: `M${cx},${cy}V${cy - 10 - up}`, stroke: 'var(--fig-muted)', 'stroke-opacity': 0.5 }));
                }
                svg.append(
                    shape('circle', { cx, cy, r: 5, fill }),
                    isFlat ? text(cx, cy - 18 - up, names) : text(cx + 12, cy + 6, names, 'start'),
                );
            }
            const told = steps.filter(({ name }) => name !== 'whole');
            const names = right => told.filter(({ intensity }) => intensity >= ridge === right).map(({ name }) => name).join(', ') || 'none';
            const whole = steps.find(({ name }) => name === 'whole').intensity;
            return {
                svg,
                says: `${tokens} tokens. Right of the ridge, ${number(ridge, 1)} FLOP/byte: ${names(true)}. Left of it: ${names(false)}. `
                    + `The whole has ${number(whole, 1)} FLOP/byte.`,
            };
        },
    };
};
