/** A section that the code writes: its Markdown, without a heading. */
export type Section = () => string | Promise<string>

const GENERATED = /^<!-- generated: (\S+) -->\n(?:([^]*?)\n)?<!-- end -->$/gm

/** Names of the generated sections of a page, in its order. */
export const sectionsOf = (page: string): string[] => [...page.matchAll(GENERATED)].map(([, name = '']) => name)

/** Lines that begin or end a section. Each begin has its end, or the page is not filled. */
const MARKS = /^<!-- (generated: .*|end) -->$/gm

/**
 * Returns the page with its generated sections replaced. A section is between `<!-- generated: NAME -->` and `<!-- end -->`, each on a
 * separate line. Throws for an unknown name and for a begin without its end.
 */
export const filledPage = async (page: string, sections: Readonly<Record<string, Section>>): Promise<string> => {
  const names = sectionsOf(page)
  const texts = new Map<string, string>()
  for (const name of names) {
    const section = Object.hasOwn(sections, name) ? sections[name] : undefined
    if (section === undefined) throw new Error(`no section is called "${name}"; there are ${Object.keys(sections).join(', ')}`)
    texts.set(name, (await section()).trim())
  }
  if ((page.match(MARKS) ?? []).length !== 2 * names.length) throw new Error('a generated section has no end, or an end has no section')
  return page.replaceAll(GENERATED, (_all, name: string) => `<!-- generated: ${name} -->\n\n${texts.get(name)}\n\n<!-- end -->`)
}
