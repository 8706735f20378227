import { MAX_LABELS, MAX_LABEL_TEXT } from '../limits/fleet.ts'

/** Labels of a contact, such as `role: "db"`. */
export type Labels = Readonly<Record<string, string>>

export const NO_LABELS: Labels = Object.freeze({})

/** A label contains no comma, bracket, operator or space, so it needs no quoting. A key cannot be `__proto__`. */
const KEY = new RegExp(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,${MAX_LABEL_TEXT - 1}}$`)
const VALUE = new RegExp(`^[A-Za-z0-9._:/+@-]{1,${MAX_LABEL_TEXT}}$`)

/** Why a label is invalid, or null. */
export const labelProblem = (key: string, value: string): string | null => {
  if (!KEY.test(key))
    return `${JSON.stringify(key.slice(0, 80))} is not a label key: use 1 to ${MAX_LABEL_TEXT} letters, digits, ".", "_", "/" and "-", and begin with a letter or a digit`
  if (!VALUE.test(value))
    return `${JSON.stringify(value.slice(0, 80))} is not a label value: use 1 to ${MAX_LABEL_TEXT} letters, digits, ".", "_", ":", "/", "+", "@" and "-"`
  return null
}

/** Why a set of labels is invalid, or null. */
export const labelsProblem = (labels: Labels): string | null => {
  const pairs = Object.entries(labels)
  if (pairs.length > MAX_LABELS) return `a contact has at most ${MAX_LABELS} labels`
  for (const [key, value] of pairs) {
    const problem = labelProblem(key, value)
    if (problem !== null) return problem
  }
  return null
}

/** Why changed labels are invalid, or null. A null value removes the label. */
export const labelChangesProblem = (changes: Readonly<Record<string, string | null>>): string | null => {
  const pairs = Object.entries(changes)
  if (pairs.length === 0) return 'no label given: key=value sets a label, key= removes it'
  if (pairs.length > MAX_LABELS) return `at most ${MAX_LABELS} labels can be changed at once`
  for (const [key, value] of pairs) {
    const problem = labelProblem(key, value ?? 'none')
    if (problem !== null) return problem
  }
  return null
}

export const sortedLabels = (labels: Labels): Labels =>
  Object.fromEntries(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : Number(a > b))))

/** `role=db site=ber`, with `role=` for a removed label. */
export const labelsText = (labels: Readonly<Record<string, string | null>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value ?? ''}`)
    .join(' ')
