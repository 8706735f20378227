import { MAX_PAGE_ROWS } from '../../protocol/limits/page.ts'
import type { PageSlice } from '../../protocol/page-lists.ts'

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
