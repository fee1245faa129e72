// What a reader sees, judged from inside the page. Most functions return a list of complaints, in words.
globalThis.checks = (() => {
    'use strict';
    const THEMES = ['light', 'navy'];

    // WCAG 2.2, level AA, for text of any size.
    const LEAST_CONTRAST = 4.5;

    // In pixels: what can still be read in a drawing on a phone.
    const LEAST_LABEL = 9;

    // In pixels: edges are rounded.
    const SLACK = 1;

    const main = () => document.querySelector('main');
    const all = selector => [...document.querySelectorAll(selector)];
    const figures = () => all('main figure:not(.moving) svg, main figure.moving .drawing svg, main p > svg[role=img]');
    const frame = () => new Promise(requestAnimationFrame);
    const visible = element => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    const style = element => getComputedStyle(element);
    const scrolls = element => ['auto', 'scroll'].includes(style(element).overflowX);

    // As in "<p class="note"> Each row sums …".
    function name(element) {
        const tag = element.cloneNode(false).outerHTML.split('>')[0].slice(0, 80);
        const words = element.textContent.trim().replace(/\s+/g, ' ').slice(0, 40);
        return `${tag}> ${words}`.trim();
    }

    /* Loading ------------------------------------------------------------------------------------------------------ */

    const shifts = [];
    const observer = new PerformanceObserver(list => shifts.push(...list.getEntries()));
    observer.observe({ type: 'layout-shift', buffered: true });

    // Waits until the page shows itself with its fonts.
    async function shown() {
        const deadline = performance.now() + 5000;
        await document.fonts.ready;
        while (!visible(main())) {
            if (performance.now() > deadline) {
                return ['the text is hidden 5 s after the page has loaded'];
            }
            await frame();
        }
        await frame();
        await document.fonts.ready;
        // Drawn twice: what was never drawn doesn't count as shifted when it moves.
        await frame();
        await frame();
        return [];
    }

    // How many elements of the text were laid out when the page first showed itself: the work that readers wait for.
    let laidOut;
    const counter = new MutationObserver(() => {
        if (main() && !document.documentElement.classList.contains('fonts-pending')) {
            counter.disconnect();
            laidOut = all('main *').filter(element => element.checkVisibility({ contentVisibilityAuto: true })).length;
        }
    });
    counter.observe(document, { subtree: true, attributeFilter: ['class'] });
    const laidOutAtFirst = () => laidOut;

    // Waits until what was out of sight is laid out, too.
    async function whole() {
        const deadline = performance.now() + 20000;
        while (!document.documentElement.classList.contains('whole')) {
            if (performance.now() > deadline) {
                return ['20 s after the page has loaded, some of it is not laid out'];
            }
            await frame();
        }
        await document.fonts.ready;
        return [];
    }

    // Scrolls to the bottom, a screen at a time, and stays there for half a second.
    async function readToTheEnd() {
        for (let top = 0; top < document.documentElement.scrollHeight; top += innerHeight) {
            scrollTo({ top, behavior: 'instant' });
            await frame();
        }
        await new Promise(done => setTimeout(done, 500));
        await frame();
    }

    // The cumulative layout shift so far, and what has moved, when the last change has been drawn.
    async function shift() {
        await frame();
        await frame();
        shifts.push(...observer.takeRecords());
        const moved = shifts.flatMap(entry => entry.sources)
            .filter(source => source.node)
            .map(({ node, previousRect: from, currentRect: to }) =>
                `${name(node.nodeType === Node.TEXT_NODE ? node.parentElement : node)} `
                + `from (${from.x}, ${from.y}) to (${to.x}, ${to.y})`);
        return { value: shifts.reduce((sum, entry) => sum + entry.value, 0), moved: [...new Set(moved)].slice(0, 5) };
    }

    const requested = () => performance.getEntriesByType('resource').map(entry => entry.name);

    /* Layout ------------------------------------------------------------------------------------------------------- */

    const unfold = () => all('main details').forEach(fold => { fold.open = true; });

    // Neither the page nor a box around all of the text may scroll sideways, or cut off what would.
    function sideways() {
        const root = document.documentElement;
        const around = [];
        for (let box = main(); box && box !== root; box = box.parentElement) {
            around.push(box);
        }
        return [root, ...around.filter(box => style(box).overflowX !== 'visible')]
            .filter(box => box.scrollWidth > box.clientWidth)
            .map(box => `${box === root ? 'the page' : name(box.cloneNode(false))} scrolls sideways: `
                + `its content is ${box.scrollWidth} px wide in ${box.clientWidth} px; see ${name(widest(box))}`);
    }

    // The innermost of the elements that reach furthest to the right, unless what is between scrolls or cuts them off.
    function widest(box) {
        const right = element => element.getBoundingClientRect().right;
        const shows = element => {
            for (let around = element.parentElement; around !== box; around = around.parentElement) {
                if (style(around).overflowX !== 'visible') {
                    return false;
                }
            }
            return true;
        };
        return [...box.querySelectorAll('*')]
            .filter(element => !element.closest('.katex-mathml') && shows(element))
            .reduce((most, element) => right(element) >= right(most) ? element : most, box.firstElementChild);
    }

    function inside(inner, outer) {
        return inner.left >= outer.left - SLACK && inner.right <= outer.right + SLACK
            && inner.top >= outer.top - SLACK && inner.bottom <= outer.bottom + SLACK;
    }

    const size = box => `${Math.round(box.width)} × ${Math.round(box.height)} px`;

    // A formula is as wide as its box. It can be scrolled, but a reader should not have to.
    function formulasFit() {
        const wide = all('main .katex-display')
            .filter(display => display.scrollWidth > display.clientWidth + SLACK)
            .map(display => `a formula is ${display.scrollWidth} px wide in ${display.clientWidth} px: ${name(display)}`);
        return [...wide, ...all('main .katex-display .base > .mrel').filter(endsLine).map(relation =>
            `a line of a formula ends in “${relation.textContent}”: ${name(relation.closest('.katex-display'))}`)];
    }

    // True for a relation with nothing behind it in its line, while the formula goes on in the next one.
    function endsLine(relation) {
        const display = relation.closest('.katex-display');
        const { right, top, bottom } = relation.getBoundingClientRect();
        const others = [...display.querySelectorAll('.base > :is(.mord, .minner, .mop, .mopen)')].map(part => part.getBoundingClientRect());
        const behind = ({ left, top: above, bottom: below }) => left >= right - 1 && above < bottom && below > top;
        return others.some(part => part.top >= bottom) && !others.some(behind);
    }

    // A drawing lies within its figure, unless that scrolls, and its labels lie within the drawing.
    function figuresFit() {
        return figures().flatMap(svg => {
            const figure = svg.closest('figure') ?? svg.parentElement;
            const [drawing, box] = [svg, figure].map(element => element.getBoundingClientRect());
            const complaints = scrolls(figure) || inside(drawing, box)
                ? [] : [`a drawing of ${size(drawing)} sticks out of its figure of ${size(box)}: ${title(svg)}`];
            const labels = [...svg.querySelectorAll('text')].map(label => ({
                words: label.textContent.trim(),
                size: parseFloat(style(label).fontSize) * scale(label),
                ...letters(label),
            }));
            const cut = labels.filter(label => !inside(label, drawing))
                .map(({ words }) => `the label "${words}" is cut off at the edge of: ${title(svg)}`);
            return [...complaints, ...cut, ...illegible(labels, svg)];
        });
    }

    // Labels that are too small, and pairs of them that overprint.
    function illegible(labels, svg) {
        const smallest = labels.reduce((least, label) => label.size < least.size ? label : least, { size: Infinity });
        const small = smallest.size < LEAST_LABEL
            ? [`the label "${smallest.words}" is ${smallest.size.toFixed(1)} px high in: ${title(svg)}`] : [];
        const overprints = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > SLACK
            && Math.min(one.base, other.base) - Math.max(one.top, other.top) > SLACK;
        const over = labels.flatMap((label, index) => labels.slice(0, index)
            .filter(other => overprints(label, other))
            .map(other => `the labels "${other.words}" and "${label.words}" overprint in: ${title(svg)}`));
        return [...small, ...over];
    }

    // Pixels on the screen for one of the drawing.
    const scale = label => Math.hypot(label.getScreenCTM().a, label.getScreenCTM().b);

    // Where the letters of a label are on the screen: above them a fifth of the line is empty, and below their base are few.
    function letters(label) {
        const { x, y, width, height } = label.getBBox();
        const toScreen = label.getScreenCTM();
        const box = bottom => {
            const corners = [x, x + width].flatMap(x => [y + height / 5, bottom].map(y => new DOMPoint(x, y)))
                .map(corner => corner.matrixTransform(toScreen));
            const [across, down] = [corners.map(corner => corner.x), corners.map(corner => corner.y)];
            return {
                left: Math.min(...across), right: Math.max(...across),
                top: Math.min(...down), bottom: Math.max(...down),
            };
        };
        return { ...box(y + height), base: box(y + 0.85 * height).bottom };
    }

    const title = svg => svg.querySelector('title')?.textContent.trim() ?? name(svg);

    // What scrolls inside itself has a shadow at the edge where it goes on.
    const unhinted = () => all('main *')
        .filter(box => scrolls(box) && box.scrollWidth > box.clientWidth + SLACK && !style(box).backgroundImage.includes('gradient'))
        .map(box => `nothing says that this goes on to the right: ${name(box)}`);

    const layout = () => [...sideways(), ...unhinted(), ...formulasFit(), ...figuresFit()];

    /* Themes ------------------------------------------------------------------------------------------------------- */

    // Chooses a theme as a reader does, and spares us the fading.
    function wear(theme) {
        document.getElementById(`mdbook-theme-${theme}`).click();
        document.getAnimations().forEach(animation => animation.finish());
    }

    function themes() {
        const complaints = [];
        const inks = {};
        for (const theme of THEMES) {
            wear(theme);
            inks[theme] = figures().map(ink);
            complaints.push(...faint().map(complaint => `in ${theme} ${complaint}`));
        }
        figures().forEach((svg, index) => {
            const [light, navy] = [inks.light[index], inks.navy[index]];
            if (light === undefined) {
                complaints.push(`a drawing does not use --fig-fg: ${title(svg)}`);
            } else if (light === navy) {
                complaints.push(`a drawing is ${light} in light as in navy: ${title(svg)}`);
            }
        });
        return complaints;
    }

    // The colour of what a drawing fills with --fig-fg.
    function ink(svg) {
        const marked = '[fill*="--fig-fg"], [style*="--fig-fg"]';
        const filled = svg.matches(marked) ? svg : svg.querySelector(marked);
        return filled ? style(filled).fill : undefined;
    }

    // What cannot be read well: the drawings' ink on the page, and any text, or heading in the list of them, on what is
    // behind it.
    function faint() {
        if (!style(document.documentElement).getPropertyValue('--fig-fg').trim()) {
            return ['--fig-fg is not defined'];
        }
        const probe = document.createElement('span');
        probe.style.color = 'var(--fig-fg)';
        main().append(probe);
        const pairs = new Map([['', { what: '--fig-fg', front: style(probe).color, back: background(probe) }]]);
        probe.remove();
        const known = new Map();
        for (const element of [main(), ...all('.page-headings')].flatMap(part => [...withText(part)])) {
            const [front, back] = [style(element).color, background(element, known)];
            pairs.set(`${front} on ${back}`, { what: name(element), front, back });
        }
        return [...pairs.values()]
            .map(({ what, front, back }) => ({ what, contrast: contrast(over(rgba(front), back), back) }))
            .filter(({ contrast }) => contrast < LEAST_CONTRAST)
            .map(({ what, contrast }) => `the contrast of ${what} is ${contrast.toFixed(2)}`);
    }

    // The elements that hold words of their own, but for drawings and what only screen readers find.
    function withText(root) {
        const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
        const elements = new Set();
        while (texts.nextNode()) {
            const element = texts.currentNode.parentElement;
            if (texts.currentNode.data.trim() && !element.closest('svg, .katex-mathml, script, style')) {
                elements.add(element);
            }
        }
        return elements;
    }

    // The colour behind an element: all layers down to the first opaque one, or the white of the canvas. What is `known` of elements around
    // is not looked at again.
    function background(element, known = new Map()) {
        if (!element) {
            return [255, 255, 255, 1];
        }
        if (!known.has(element)) {
            const layer = rgba(style(element).backgroundColor);
            known.set(element, layer[3] === 1 ? layer : over(layer, background(element.parentElement, known)));
        }
        return known.get(element);
    }

    const over = ([r, g, b, alpha], below) =>
        [...[r, g, b].map((value, index) => alpha * value + (1 - alpha) * below[index]), 1];

    const canvas = (() => {
        const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        const known = new Map();
        return { context, known };
    })();

    // Red, green and blue up to 255 and the opacity up to 1, of any colour that CSS can write.
    function rgba(colour) {
        if (!canvas.known.has(colour)) {
            canvas.context.clearRect(0, 0, 1, 1);
            canvas.context.fillStyle = colour;
            canvas.context.fillRect(0, 0, 1, 1);
            const [r, g, b, alpha] = canvas.context.getImageData(0, 0, 1, 1).data;
            canvas.known.set(colour, [r, g, b, alpha / 255]);
        }
        return canvas.known.get(colour);
    }

    // https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
    function contrast(one, other) {
        const [dark, bright] = [one, other].map(luminance).sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
    }

    function luminance(colour) {
        const [r, g, b] = colour.slice(0, 3)
            .map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }

    /* Maths, fonts, scripts ---------------------------------------------------------------------------------------- */

    // Every formula is there a second time, for screen readers: as MathML, but in a button, whose content is plain text, in words.
    function maths() {
        return all('.katex:not(button .katex)')
            .filter(formula => formula.querySelectorAll('math').length !== 1)
            .map(formula => `a formula without MathML: ${name(formula)}`);
    }

    // The first family that the text, and a formula, ask for has come.
    function fonts() {
        return [main(), document.querySelector('main .katex')]
            .filter(element => element)
            .map(element => style(element).fontFamily.split(',')[0].trim())
            .filter(family => !loaded(family))
            .map(family => `the font ${family} is not loaded`);
    }

    // `check` alone is also content with a family that is not declared.
    function loaded(family) {
        const unquoted = text => text.replace(/^["']|["']$/g, '');
        return document.fonts.check(`1em ${family}`)
            && [...document.fonts].some(face => unquoted(face.family) === unquoted(family) && face.status === 'loaded');
    }

    // Nothing of the text is hidden, and nothing lies on it. What only a script asks stays hidden without scripts.
    function readable() {
        const hidden = all('main :is(h1, h2, h3, h4, p, li, pre, table, figure)')
            .filter(block => !block.closest('details:not([open]), .quiz [hidden], .progress[hidden]') && !visible(block))
            .map(block => `hidden: ${name(block)}`);
        const heading = document.querySelector('main h1');
        heading.scrollIntoView({ block: 'center' });
        const { left, top, width, height } = heading.getBoundingClientRect();
        const above = document.elementFromPoint(left + Math.min(width, 200) / 2, top + height / 2);
        const covered = hidden.length || main().contains(above)
            ? [] : [`the text is covered by ${above ? name(above) : 'the edge of the screen'}`];
        return [...hidden.slice(0, 3), ...covered];
    }

    /* Meaning ------------------------------------------------------------------------------------------------------ */

    // Which roles an element may be given, of those elements and roles that are in use here.
    // https://www.w3.org/TR/html-aria/#docconformance
    const ROLES = {
        button: ['menuitem', 'switch', 'tab'],
        div: 'any',
        li: ['none', 'presentation', 'menuitem'],
        nav: ['menu', 'menubar', 'tablist', 'none', 'presentation'],
        ol: ['group', 'list', 'listbox', 'menu', 'none', 'presentation', 'tree'],
        span: 'any',
        svg: 'any',
        ul: ['group', 'list', 'listbox', 'menu', 'none', 'presentation', 'tree'],
    };

    // No element has a role that it may not have, and no header of a table is empty.
    function meaning() {
        const roles = all('[role]')
            .filter(({ localName, role }) => ROLES[localName] !== 'any' && !ROLES[localName]?.includes(role))
            .map(element => `<${element.localName}> may not have the role ${element.role}: ${name(element)}`);
        const headers = all('main th')
            .filter(header => !header.textContent.trim())
            .map(header => `a header is empty in the table ${name(header.closest('table'))}`);
        return [...roles, ...headers];
    }

    /* Navigation --------------------------------------------------------------------------------------------------- */

    // The most that may lie between two chapters in the sidebar: the name of a part, with room above and below.
    const PART = 80;

    const middle = ({ left, top, width, height }) => [left + width / 2, top + height / 2];

    // What lies on the middle of an element.
    function above(element) {
        const found = document.elementFromPoint(...middle(element.getBoundingClientRect()));
        return found && !element.contains(found) ? found : undefined;
    }

    // Where the sidebar is open it lists the chapters and nothing else, with the one being read in sight.
    function chapters() {
        const sidebar = document.getElementById('mdbook-sidebar');
        if (!document.documentElement.classList.contains('sidebar-visible')) {
            return ['the sidebar is closed'];
        }
        const links = [...sidebar.querySelectorAll('.chapter a[href]')].filter(link => link.pathname !== location.pathname
            || link.classList.contains('active'));
        const box = link => link.getBoundingClientRect();
        const inSight = link => middle(box(link))[1] > 0 && middle(box(link))[1] < innerHeight;
        const covered = links.filter(link => inSight(link) && above(link))
            .map(link => `the chapter ${name(link)} is covered by ${name(above(link))}`);
        const apart = links.slice(1).map((link, index) => ({ link, gap: box(link).top - box(links[index]).bottom }))
            .filter(({ gap }) => gap > PART)
            .map(({ link, gap }) => `${Math.round(gap)} px of other things are above the chapter ${name(link)}`);
        const active = links.find(link => link.classList.contains('active'));
        const lost = active && inSight(active) ? [] : ['the chapter being read is not in sight in the sidebar'];
        return [...covered, ...apart, ...lost];
    }

    // Closes the sidebar as a reader does, and waits until everything has moved to its place.
    async function closeSidebar() {
        document.querySelector('.left-buttons > :not([hidden])').click();
        await frame();
        // What follows the scrolling ends only at the bottom of the page.
        const moving = document.getAnimations().filter(({ timeline }) => timeline === document.timeline);
        await Promise.allSettled(moving.map(animation => animation.finished));
        await frame();
        return document.documentElement.classList.contains('sidebar-visible') ? ['the sidebar does not close'] : [];
    }

    // The headings of the page are listed in a landmark with a name: beside the text, clear of it and of the arrows that
    // turn the page; or, where that is too narrow, in a box that a button opens and the Escape key closes.
    async function headings() {
        const expected = all('main :is(h2, h3, h4, h5, h6)[id]');
        const nav = document.querySelector('nav.page-headings');
        if (!nav) {
            return expected.length ? ['the headings of the page are not listed'] : [];
        }
        const links = [...nav.querySelectorAll('a')];
        const complaints = [];
        const list = texts => texts.map(text => text.textContent.trim()).join(', ');
        if (list(links) !== list(expected)) {
            complaints.push(`the headings of the page are listed as ${list(links)}`);
        }
        if (!document.getElementById(nav.getAttribute('aria-labelledby'))?.textContent.trim()) {
            complaints.push('the list of headings has no name');
        }
        const box = nav.querySelector('.page-headings-box');
        const button = document.querySelector('.page-headings-button');
        const folded = !visible(box);
        if (folded === !visible(button)) {
            complaints.push(`the headings are ${folded ? 'folded and no button opens them' : 'there and so is their button'}`);
        } else if (folded) {
            button.click();
            await frame();
            if (!visible(box) || above(document.activeElement) || !nav.contains(document.activeElement)) {
                complaints.push('the button does not open the headings');
            }
            complaints.push(...outside(box));
            document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
            if (visible(box) || document.activeElement !== button) {
                complaints.push('the Escape key does not close the headings');
            }
        } else {
            const { left, right } = box.getBoundingClientRect();
            const beside = element => {
                const other = element.getBoundingClientRect();
                return !other.width || other.right <= left || other.left >= right;
            };
            complaints.push(...outside(box), ...all('main > :not(section), main > section > *, .nav-chapters').filter(element => !beside(element))
                .map(element => `the headings lie on ${name(element)}`));
        }
        return complaints;
    }

    function outside(box) {
        const rectangle = box.getBoundingClientRect();
        const frame = { left: 0, top: 0, right: document.documentElement.clientWidth, bottom: innerHeight };
        return inside(rectangle, frame) ? [] : [`the headings, ${size(rectangle)}, stick out of the window`];
    }

    // The heading being read is marked among the headings, for the eye and for screen readers, and in sight there.
    async function place() {
        const sections = all('main :is(h2, h3)[id]');
        const top = heading => heading.getBoundingClientRect().top;
        // In the middle of the page, and with some text before the next: mdBook marks the last heading that is near the
        // top of the window.
        const section = sections.find((heading, index) =>
            index >= sections.length / 2 && top(sections[index + 1] ?? heading) - top(heading) > 300);
        if (!section) {
            return [];
        }
        section.scrollIntoView({ behavior: 'instant' });
        await frame();
        await frame();
        const marked = all('.page-headings [aria-current]');
        const right = marked.length === 1 && marked[0].hash === `#${section.id}`
            && marked[0].classList.contains('current-header') && (!visible(marked[0]) || !above(marked[0]));
        scrollTo({ top: 0, behavior: 'instant' });
        return right ? [] : [`at ${name(section)} the list of headings marks ${marked.map(name).join(', ') || 'nothing'}`];
    }

    return {
        shown, whole, laidOutAtFirst, readToTheEnd, shift, requested, unfold, layout, formulasFit, wear, themes, maths, fonts, readable, meaning, chapters,
        closeSidebar, headings, place,
    };
})();
