import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { ListOrder, PageSlice } from '../../protocol/page-lists.ts'

/** One page of a list. */
export const sliceOf = <T>(all: readonly T[], from: number, count = MAX_PAGE_ROWS): Pick<PageSlice<T>, 'rows' | 'from' | 'total'> => {
  // A list that has become shorter shows its last page.
  const first = from < all.length ? from : Math.max(0, all.length - count)
  return { rows: all.slice(first, first + count), from: first, total: all.length }
}

/** Whether a text has every word of a filter. */
export const hasWords = (filter: string): ((text: string) => boolean) => {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean)
  return (text) => words.every((word) => text.toLowerCase().includes(word))
}

/** The beginning of a time range that ends now, as ISO 8601, which sorts as text. Empty for all time. */
export const rangeStart = (now: number, within_ms: number | null): string =>
  within_ms === null ? '' : new Date(Math.max(0, now - within_ms)).toISOString()

/** Value of a row in a column. Null is a missing value. */
type SortValue = string | number | null

/** Gets the value of a row for each column. */
export type SortValues<T, C extends string> = Readonly<Record<C, (row: T) => SortValue>>

const NATURAL = new Intl.Collator('en', { numeric: true })

/** Compares texts with their numbers by value, so that `web2` is before `web10`. Texts that differ in hidden characters differ as well. */
export const compareTexts = (a: string, b: string): number => NATURAL.compare(a, b) || (a < b ? -1 : Number(a > b))

const compareValues = (a: string | number, b: string | number): number =>
  typeof a === 'number' && typeof b === 'number' ? a - b : compareTexts(String(a), String(b))

/** Sorts a whole list by a column. Missing values come last in both directions. Rows with equal values keep their order. */
export const sortedBy = <T, C extends string>(rows: readonly T[], order: ListOrder<C> | null, values: SortValues<T, C>): readonly T[] => {
  if (order === null) return rows
  const sign = order.startsWith('-') ? -1 : 1
  const valueOf = values[order.replace(/^-/, '') as C]
  return rows
    .map((row) => ({ row, value: valueOf(row) }))
    .toSorted(({ value: a }, { value: b }) =>
      a === null || b === null ? Number(a === null) - Number(b === null) : sign * compareValues(a, b),
    )
    .map(({ row }) => row)
}
