import { MAX_LABELS, MAX_LABEL_TEXT } from './fleet-limits.ts'

/** What an operator calls a contact beside its name: `role: "db"`. */
export type Labels = Readonly<Record<string, string>>

export const NO_LABELS: Labels = Object.freeze({})

/** No comma, bracket, sign or space, so that a label stands in an expression as it is; and nothing that every object has. */
const KEY = new RegExp(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,${MAX_LABEL_TEXT - 1}}$`)
const VALUE = new RegExp(`^[A-Za-z0-9._:/+@-]{1,${MAX_LABEL_TEXT}}$`)

/** What is wrong with a label, or null. */
export const labelProblem = (key: string, value: string): string | null => {
  if (!KEY.test(key))
    return `${JSON.stringify(key.slice(0, 80))} is no key of a label: 1 to ${MAX_LABEL_TEXT} of letters, digits, ".", "_", "/" and "-", the first a letter or a digit`
  if (!VALUE.test(value))
    return `${JSON.stringify(value.slice(0, 80))} is no value of a label: 1 to ${MAX_LABEL_TEXT} of letters, digits, ".", "_", ":", "/", "+", "@" and "-"`
  return null
}

/** What is wrong with so many of them, or null. */
export const labelsProblem = (labels: Labels): string | null => {
  const pairs = Object.entries(labels)
  if (pairs.length > MAX_LABELS) return `a contact has at most ${MAX_LABELS} labels`
  for (const [key, value] of pairs) {
    const problem = labelProblem(key, value)
    if (problem !== null) return problem
  }
  return null
}

/** What is wrong with what is given and, where it is null, taken, or null. */
export const labelChangesProblem = (changes: Readonly<Record<string, string | null>>): string | null => {
  const pairs = Object.entries(changes)
  if (pairs.length === 0) return 'no label is named: key=value gives one, key= takes it away'
  if (pairs.length > MAX_LABELS) return `at most ${MAX_LABELS} labels are changed at once`
  for (const [key, value] of pairs) {
    const problem = labelProblem(key, value ?? 'none')
    if (problem !== null) return problem
  }
  return null
}

/** In the order of their keys. */
export const sortedLabels = (labels: Labels): Labels =>
  Object.fromEntries(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : Number(a > b))))

/** `role=db site=ber`, and `role=` for one that is taken away. */
export const labelsText = (labels: Readonly<Record<string, string | null>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value ?? ''}`)
    .join(' ')
