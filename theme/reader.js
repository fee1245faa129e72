// What CSS alone cannot do: a link past the navigation, a sidebar switch and scrolling boxes that the keyboard reaches,
// the headings of the page beside the text, folded answers open on paper, and the link to where the reader stopped.
'use strict';
(() => {
    const main = document.querySelector('main');
    main.id = 'main-text';
    const skip = document.createElement('a');
    skip.className = 'skip-link';
    skip.href = `#${main.id}`;
    skip.textContent = 'Skip to the text';
    document.body.prepend(skip);

    document.getElementById('mdbook-menu-bar').setAttribute('role', 'banner');

    // mdBook's switch is a <label>, which takes no focus and may be no button. A button stands in for it and passes the
    // clicks on; where no script runs, the label stays.
    const label = document.getElementById('mdbook-sidebar-toggle');
    const toggle = document.createElement('button');
    toggle.type = 'button';
    toggle.className = label.className;
    toggle.append(...label.childNodes);
    const sayState = () => ['title', 'aria-label', 'aria-controls', 'aria-expanded']
        .forEach(name => toggle.setAttribute(name, label.getAttribute(name)));
    sayState();
    new MutationObserver(sayState).observe(label, { attributeFilter: ['aria-expanded'] });
    toggle.addEventListener('click', () => label.click());
    label.hidden = true;
    label.after(toggle);

    // The page comes back unchanged with the back button, even if another theme was chosen in the meantime.
    window.addEventListener('pageshow', event => {
        if (event.persisted) {
            const theme = localStorage.getItem('mdbook-theme') ?? 'default_theme';
            document.getElementById(`mdbook-theme-${theme}`)?.click();
        }
    });

    // mdBook's toc.js lists the headings of the page inside the list of chapters, in an earlier listener of this event,
    // and marks the one being read. The list moves beside the text, where there is room, or into a box that a button in
    // the menu bar opens: book.css decides which.
    document.addEventListener('DOMContentLoaded', () => {
        const inSidebar = document.querySelector('#mdbook-sidebar .on-this-page');
        if (!inSidebar) {
            return;
        }
        inSidebar.querySelectorAll('.chapter-fold-toggle').forEach(fold => fold.remove());
        const title = document.createElement('p');
        title.id = 'page-headings-title';
        title.className = 'page-headings-title';
        title.textContent = 'On this page';
        const box = document.createElement('div');
        box.className = 'page-headings-box';
        box.append(title, ...inSidebar.childNodes);
        inSidebar.remove();
        const nav = document.createElement('nav');
        nav.id = 'page-headings';
        nav.className = 'page-headings';
        nav.setAttribute('aria-labelledby', title.id);
        nav.append(box);
        main.before(nav);

        const button = document.createElement('button');
        button.type = 'button';
        button.className = 'icon-button page-headings-button';
        button.textContent = title.textContent;
        button.setAttribute('aria-controls', nav.id);
        document.querySelector('.right-buttons').prepend(button);
        const current = () => box.querySelector('.current-header');
        const open = yes => {
            nav.classList.toggle('open', yes);
            button.setAttribute('aria-expanded', yes);
        };
        open(false);
        button.addEventListener('click', () => {
            open(!nav.classList.contains('open'));
            if (nav.classList.contains('open')) {
                (current() ?? box.querySelector('a')).focus();
            }
        });
        document.addEventListener('click', event => {
            if (event.target.closest('.page-headings a') || !event.target.closest('.page-headings, .page-headings-button')) {
                open(false);
            }
        });
        nav.addEventListener('focusout', event => {
            if (event.relatedTarget && !nav.contains(event.relatedTarget) && event.relatedTarget !== button) {
                open(false);
            }
        });
        document.addEventListener('keydown', event => {
            if (event.key === 'Escape' && nav.classList.contains('open')) {
                open(false);
                button.focus();
            }
        });
        new ResizeObserver(() => {
            button.hidden = getComputedStyle(nav).getPropertyValue('--folded').trim() === '0';
        }).observe(main.parentElement);

        // Screen readers hear which heading is being read, and a list longer than the window follows.
        const follow = () => {
            box.querySelectorAll('[aria-current]').forEach(link => link.removeAttribute('aria-current'));
            const link = current();
            if (link) {
                link.setAttribute('aria-current', 'location');
                const [inner, outer] = [link, box].map(element => element.getBoundingClientRect());
                box.scrollTop += Math.min(0, inner.top - outer.top - inner.height)
                    + Math.max(0, inner.bottom - outer.bottom + inner.height);
            }
        };
        follow();
        new MutationObserver(follow).observe(box, { attributeFilter: ['class'], subtree: true });
    });

    // Browsers leave formulas out of the name that they give a column after its header. A formula without fractions can be
    // read aloud from left to right, and so becomes its own label.
    const aloud = part => {
        const parts = [...part.children].filter(({ localName }) => localName !== 'annotation').map(aloud);
        const { localName } = part;
        return localName === 'msup' ? parts.join(' to the power of ')
            : localName === 'msqrt' ? `square root of ${parts.join(' ')}`
            : parts.join(' ') || part.textContent;
    };
    document.querySelectorAll('th math:not(:has(msubsup, mfrac, mroot, mover))').forEach(formula => {
        formula.setAttribute('aria-label', aloud(formula));
    });

    const boxes = document.querySelectorAll('.katex-display, .table-wrapper, figure.wide, main pre > code');
    const mark = () => boxes.forEach(box => {
        if (box.scrollWidth > box.clientWidth + 1) {
            box.tabIndex = 0;
        } else {
            box.removeAttribute('tabindex');
        }
    });
    window.addEventListener('resize', mark);

    // Each section is laid out while there is nothing else to do, its formulas for screen readers a moment later; but soon, since some of these
    // don't see what is not laid out.
    const idle = window.requestIdleCallback ? work => requestIdleCallback(work, { timeout: 500 }) : work => setTimeout(work, 50);
    // In a listing that has two of them, the names q, k and v have the colours of queries, keys and values.
    const roles = window.Highlight && CSS.highlights ? { q: new Highlight(), k: new Highlight(), v: new Highlight() } : {};
    Object.entries(roles).forEach(([name, highlight]) => CSS.highlights.set(`role-${name}`, highlight));
    const tint = code => {
        const names = /\b[qkv]\b/gu;
        if (!roles.q || new Set(code.textContent.match(names)).size < 2) {
            return;
        }
        const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            for (const { 0: name, index } of walker.currentNode.data.matchAll(names)) {
                roles[name].add(new StaticRange({
                    startContainer: walker.currentNode, startOffset: index, endContainer: walker.currentNode, endOffset: index + 1,
                }));
            }
        }
    };
    const sections = [...main.children];
    const formulas = [...main.querySelectorAll('.katex-mathml')];
    const FORMULAS = 20; // at once
    const settle = () => {
        const section = sections.shift();
        if (section) {
            section.classList.add('settled');
            (section.matches('pre') ? [section] : section.querySelectorAll('pre')).forEach(tint);
            idle(settle);
        } else if (formulas.length) {
            formulas.splice(0, FORMULAS).forEach(formula => formula.classList.add('told'));
            idle(settle);
        } else {
            // Without `settling` the whole page would be styled once more.
            document.documentElement.classList.add('whole');
            mark();
        }
    };
    window.addEventListener('load', () => idle(settle));

    document.getElementById('print')?.addEventListener('click', () => window.print());
    let opened = [];
    window.addEventListener('beforeprint', () => {
        opened = [...document.querySelectorAll('main details:not([open])')];
        opened.forEach(fold => fold.open = true);
    });
    window.addEventListener('afterprint', () => opened.forEach(fold => fold.open = false));

    // What is copied is what runs: with the lines that are hidden, but for a last one that `main` has, too.
    globalThis.playground_text = snippet =>
        snippet.querySelector('code').textContent.replace(/^Ok::<.*>\(\(\)\)\n?$/m, '');

    // The first page says where one has stopped reading. The storage may be shut, and others may have written to it.
    const PLACE = 'attention-built-place';
    const title = main.querySelector('h1');
    const read = action => {
        try {
            return action();
        } catch {
            return undefined;
        }
    };
    if (document.querySelector('a[rel=prev]')) {
        document.addEventListener('visibilitychange', () => read(() => {
            const section = document.querySelector('.page-headings .current-header');
            const page = location.pathname.split('/').pop();
            localStorage.setItem(PLACE, JSON.stringify([page + (section?.hash ?? ''), title.textContent, section?.textContent]));
        }));
    } else if (document.querySelector('a[rel~=next]')) {
        const [address, chapter, section] = read(() => [...JSON.parse(localStorage.getItem(PLACE))]) ?? [];
        if (/^[\w-]+\.html/.test(address)) {
            const link = document.createElement('a');
            link.href = address;
            link.textContent = section ? `${chapter}, ${section}` : chapter;
            const line = document.createElement('p');
            line.className = 'last-place';
            line.append('You were at: ', link);
            title.after(line);
        }
    }

    // The list of chapters marks those that were read to their end, and the one in which reading stopped.
    const READ = 'attention-built-read';
    const page = link => link.pathname.split('/').pop();
    const markChapters = () => {
        const finished = read(() => [...JSON.parse(localStorage.getItem(READ))]) ?? [];
        const [stopped] = read(() => [...JSON.parse(localStorage.getItem(PLACE))]) ?? [];
        document.querySelectorAll('#mdbook-sidebar .chapter a, main .chapters a').forEach(link => {
            const isPlace = !link.matches('.active') && String(stopped).split('#')[0] === page(link);
            const label = finished.includes(page(link)) ? 'read' : isPlace ? 'you stopped here' : '';
            link.querySelector('.reading-mark')?.remove();
            if (label) {
                const mark = document.createElement('span');
                mark.className = `reading-mark ${label.split(' ').pop()}`;
                mark.setAttribute('role', 'img');
                mark.setAttribute('aria-label', label);
                mark.title = label;
                link.append(mark);
            }
        });
    };
    markChapters();

    // A chapter was read if each of its sections was in the window for as long as a fast reader takes. A visit goes on where the last one ended.
    const SEEN = 'attention-built-seen';
    const [LETTERS_A_SECOND, MOST_SECONDS] = [100, 30];
    const stored = name => Object(read(() => JSON.parse(localStorage.getItem(name))) ?? {});
    const hasEnd = document.querySelector('a[rel=prev]');
    const unread = new Map();
    if (hasEnd) {
        const seen = [stored(SEEN)[page(location)] ?? []].flat();
        const parts = main.querySelectorAll(':scope > section');
        (parts.length ? parts : [main]).forEach(part => {
            if (!seen.includes(part.firstElementChild.id)) {
                unread.set(part, 1 + Math.min(part.textContent.length / LETTERS_A_SECOND, MOST_SECONDS));
            }
        });
    }
    const inWindow = new Set();
    const looks = new IntersectionObserver(changes => changes.forEach(({ target, isIntersecting }) =>
        isIntersecting ? inWindow.add(target) : inWindow.delete(target)));
    unread.forEach((_, section) => looks.observe(section));
    const reading = unread.size && setInterval(() => {
        const begun = document.hidden ? [] : [...inWindow].filter(section => unread.has(section));
        begun.forEach(section => unread.set(section, unread.get(section) - 1));
        const done = begun.filter(section => unread.get(section) <= 0);
        if (!done.length) {
            return;
        }
        done.forEach(section => unread.delete(section));
        read(() => {
            const all = stored(SEEN);
            all[page(location)] = [all[page(location)] ?? [], done.map(section => section.firstElementChild.id)].flat();
            if (!unread.size) {
                clearInterval(reading);
                delete all[page(location)];
                const finished = read(() => [...JSON.parse(localStorage.getItem(READ))]) ?? [];
                localStorage.setItem(READ, JSON.stringify([...new Set([...finished, page(location)])]));
                markChapters();
            }
            localStorage.setItem(SEEN, JSON.stringify(all));
        });
    }, 1000);

    // Those who began a path by one of its links are led to its next chapter, until they leave it.
    const PATH = 'attention-built-path';
    const chosen = stored(PATH);
    document.querySelectorAll('[data-path]').forEach(path => {
        path.classList.toggle('chosen', path.dataset.path === chosen.name);
        path.addEventListener('click', event => event.target.closest('a') && read(() => localStorage.setItem(PATH,
            JSON.stringify({ name: path.dataset.path, question: path.querySelector('strong').textContent }))));
    });
    if (chosen.name && hasEnd) {
        const paths = JSON.parse(main.querySelector('[data-paths]')?.dataset.paths ?? '[]');
        const [, , number, count, next] = paths.find(([name]) => name === chosen.name) ?? [];
        const element = (name, attributes, ...children) => {
            const made = Object.assign(document.createElement(name), attributes);
            made.append(...children);
            return made;
        };
        const path = element('a', { href: `using-this-book.html#path-${encodeURIComponent(chosen.name)}` }, chosen.question);
        const where = number ? `chapter ${number} of ${count}` : 'which this page is not on';
        const leave = element('button', { type: 'button' }, 'Leave the path');
        const line = element('nav', { className: 'in-path', ariaLabel: 'Your path' }, element('p', {}, 'Your path: ', path, ` (${where}). `, leave));
        leave.addEventListener('click', () => {
            read(() => localStorage.removeItem(PATH));
            line.remove();
        });
        if (next) {
            line.append(element('a', { className: 'nav-chapters next', href: next[0] }, `Next on your path: ${next[1]}`));
        } else if (number) {
            line.append(element('p', {}, 'This was the last chapter of your path.'));
        }
        document.querySelector('.nav-wrapper').prepend(line);
    }

    // Below a formula stand its shapes, which describe it.
    document.querySelectorAll('p:has(> .katex-display) + .shapes').forEach((shapes, index) => {
        shapes.id = `shapes-${index}`;
        shapes.previousElementSibling.querySelector('math').setAttribute('aria-describedby', shapes.id);
    });

    // Links and letters show what they lead to and mean, by a script that comes when the pointer or the focus has found a first one. A page that is
    // opened from a disk may read no other.
    if (location.protocol !== 'file:') {
        // A finger shows what a word means before it follows the link.
        document.addEventListener('click', event => {
            const term = event.pointerType === 'touch' && event.target.closest?.('main a.term:not([aria-describedby])');
            if (term) {
                event.preventDefault();
                import('./on-demand/preview.js').then(preview => preview.tap(term, event.clientX), () => location.assign(term.href));
            }
        });
        const first = new AbortController();
        ['pointerover', 'focusin'].forEach(name => document.addEventListener(name, event => {
            if (event.target.closest?.('main :is(a[href], .katex)')) {
                first.abort();
                // Not there if mdBook's own program has built the book.
                import('./on-demand/preview.js').then(preview => preview.meet(event), () => {});
            }
        }, first));
    }

    // Figures that move come after the page can be read, and only where the build has put them. A page that is opened from
    // a disk may load no modules, and keeps its still figures. A page whose figure has a button waits until it is wanted.
    const playground = document.querySelector('meta[name="playground"]')?.content;
    if (playground && location.protocol !== 'file:') {
        const figures = document.querySelectorAll('figure[data-moves]');
        const load = () => import(new URL(playground, document.baseURI)).catch(error => figures.forEach(figure => {
            const words = document.createElement('p');
            words.className = 'stuck';
            words.textContent = `This figure stands still: its program can't run in this browser (${error.message}).`;
            figure.append(words);
        }));
        const button = main.querySelector('figure[data-moves] > .play');
        if (button) {
            button.hidden = false;
            const wanted = new AbortController();
            ['pointerover', 'focusin', 'click'].forEach(name => button.parentElement.addEventListener(name, () => {
                wanted.abort();
                load();
            }, wanted));
        } else {
            window.addEventListener('load', () => idle(load));
        }
    }
})();
