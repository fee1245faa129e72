// Asks axe-core about the page and its figures. Functions return a list of complaints, in words.
globalThis.axeChecks = (() => {
    'use strict';
    const figures = () => [...document.querySelectorAll('figure.moving')];

    async function ask(context) {
        const { violations } = await axe.run(context, { resultTypes: ['violations'] });
        return violations.flatMap(({ id, nodes }) =>
            nodes.map(node => `${id}: ${node.target.join(' ')}: ${node.failureSummary.replace(/\s+/g, ' ')}`));
    }

    // Waits until all figures of the page move that can.
    async function figuresMove() {
        document.querySelector('figure[data-moves] > .play')?.click();
        while (document.querySelector('figure[data-moves]:not(.moving)')) {
            await new Promise(requestAnimationFrame);
        }
    }

    // Every state in which one control is not as it is at first: a slider at either end, each option of a choice.
    function states() {
        return figures().flatMap(figure => [...figure.querySelectorAll(':is(.field, .line) > :is(input, select)')]).flatMap(control => {
            const values = control.options ? [...control.options].map(option => option.value) : [control.min, control.max];
            return values.filter(value => value !== control.value).map(value => [control.id, value]);
        });
    }

    // Leaves nothing of the text but its figures: axe-core walks all of the page each time that it is asked.
    function keepFigures() {
        document.querySelectorAll('main > :not(section), main > section > *').forEach(part => {
            if (!part.matches('.moving') && !part.querySelector('.moving')) {
                part.remove();
            }
        });
    }

    function move(control, value) {
        control.value = value;
        ['input', 'change'].forEach(kind => control.dispatchEvent(new Event(kind, { bubbles: true })));
    }

    // All rules on a figure, with one control moved forth and back.
    async function inState([id, value]) {
        const control = document.getElementById(id);
        const before = control.value;
        move(control, value);
        const complaints = await ask(control.closest('figure'));
        move(control, before);
        return complaints.map(complaint => `with ${id} at ${value}, ${complaint}`);
    }

    return { page: () => ask(document), figuresMove, states, keepFigures, inState };
})();
