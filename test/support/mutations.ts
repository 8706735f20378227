const isTable = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Lists that differ slightly: another order, joined or split words, a word more or less, or a changed letter. */
export const otherLists = (list: readonly unknown[]): string[][] => {
  const texts = list.map(String)
  const [first = '', ...rest] = texts
  const ways = [texts.toReversed(), rest, texts.slice(0, -1), [...texts, ''], ['', ...texts], [texts.join(' ')], [texts.join('')]]
  // Joined with the next word, or split in two.
  ways.push(
    [first + rest.join(''), ...rest.map(() => '')],
    [first.slice(0, 1), first.slice(1), ...rest],
    texts.flatMap((text) => text.split(' ')),
  )
  const changed = texts.flatMap((text, at) => otherTexts(text).map((other) => texts.with(at, other)))
  return [...ways, ...changed].filter((way) => JSON.stringify(way) !== JSON.stringify(list))
}
const otherTexts = (text: string): string[] => [
  `${text} `,
  `${text}\0`,
  ` ${text}`,
  text.slice(1),
  text.toUpperCase(),
  text.replace(/.$/, '~'),
]

/** Every changed variant of each part of a run, with the path of the part. New parts are included automatically. */
export const mutations = (value: unknown, at: string): [at: string, other: unknown][] => {
  if (typeof value === 'string') return otherTexts(value).flatMap((other) => (other === value ? [] : [[at, other]]))
  if (typeof value === 'number') return [0, -1, value + 1].flatMap((other) => (other === value ? [] : [[at, other]]))
  if (typeof value === 'bigint') return [[at, value + 1n]]
  if (typeof value === 'boolean') return [[at, !value]]
  if (Array.isArray(value)) return otherLists(value).map((other) => [at, other])
  if (!isTable(value)) return []
  const parts = Object.entries(value).flatMap(([key, part]) =>
    [...mutations(part, `${at}.${key}`), [`${at}.${key}`, null] as const].flatMap(([place, other]): [string, unknown][] =>
      part === other ? [] : [[place, { ...value, [key]: other }]],
    ),
  )
  return at.endsWith('.env') ? [...parts, ...otherNames(value).map((other): [string, unknown] => [at, other])] : parts
}

const otherNames = (env: Record<string, unknown>): Record<string, unknown>[] => {
  const [[name, value] = ['', ''], ...rest] = Object.entries(env)
  return [
    { ...env, NEW: '' },
    Object.fromEntries(rest),
    { ...Object.fromEntries(rest), [`${name}_`]: value },
    { ...env, [name]: `${name}=${String(value)}` },
  ]
}
