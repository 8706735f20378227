import type { ComponentChildren } from 'preact'
import { shownSentence } from '../base/visible-text.ts'
import type { ViewQuery } from './router.ts'

/** Fields that narrow a list. */
export const Filters = ({ children }: { readonly children: ComponentChildren }) => (
  <form class="filters" role="search" onSubmit={(submitted) => submitted.preventDefault()}>
    {children}
  </form>
)

interface TextFilterProps {
  readonly name: string
  readonly value: string
  readonly hint: string
  readonly set: (value: string) => void
  /** Whether `/` goes to it. */
  readonly isSearch?: boolean
}

export const TextFilter = ({ name, value, hint, set, isSearch = false }: TextFilterProps) => (
  <label>
    {name}{' '}
    <input
      type="search"
      value={value}
      placeholder={hint}
      spellcheck={false}
      autocomplete="off"
      maxLength={256}
      data-search={isSearch ? '' : undefined}
      onInput={(typed) => set(typed.currentTarget.value)}
    />
  </label>
)

interface ChoiceProps {
  readonly name: string
  readonly value: string
  /** Values with their texts. */
  readonly choices: readonly (readonly [string, string])[]
  readonly set: (value: string) => void
}

export const Choice = ({ name, value, choices, set }: ChoiceProps) => (
  <label>
    {name}{' '}
    <select value={value} onChange={(changed) => set(changed.currentTarget.value)}>
      {choices.map(([id, text]) => (
        <option key={id} value={id}>
          {shownSentence(text)}
        </option>
      ))}
    </select>
  </label>
)

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

/** Time ranges by their words in an address. */
const RANGE_MS: Readonly<Record<string, number>> = { '15min': 15 * MINUTE_MS, hour: 60 * MINUTE_MS, day: DAY_MS, week: 7 * DAY_MS }

const RANGES = [
  ['', 'any time'],
  ['15min', 'the last 15 minutes'],
  ['hour', 'the last hour'],
  ['day', 'the last day'],
  ['week', 'the last week'],
] as const

const AGES = [
  ['', 'any time'],
  ['hour', '1 hour'],
  ['day', '1 day'],
  ['week', '1 week'],
] as const

/** Length of the time range in an address, or null for any time. */
export const rangeMs = (range: string): number | null => (Object.hasOwn(RANGE_MS, range) ? RANGE_MS[range]! : null)

/** The choice of a time range that ends now. */
export const RangeChoice = ({ name, value, set }: Omit<ChoiceProps, 'choices'>) => (
  <Choice name={name} value={rangeMs(value) === null ? '' : value} choices={RANGES} set={set} />
)

/** The choice of an age. */
export const AgeChoice = ({ name, value, set }: Omit<ChoiceProps, 'choices'>) => (
  <Choice name={name} value={AGES.some(([age]) => age === value) ? value : ''} choices={AGES} set={set} />
)

/** The choice of one of the values that occur in a list. A chosen value stays in it. */
export const ValueChoice = ({ name, value, values, set }: Omit<ChoiceProps, 'choices'> & { readonly values: readonly string[] }) => (
  <Choice
    name={name}
    value={value}
    choices={[['', 'any'], ...[...new Set([...values, ...(value === '' ? [] : [value])])].map((one) => [one, one] as const)]}
    set={set}
  />
)

/** Says that a list is empty because of its filters, and clears them. */
export const NoMatch = ({
  of,
  filters,
  query,
}: {
  readonly of: string
  readonly filters: readonly string[]
  readonly query: ViewQuery
}) => (
  <p class="empty">
    No {of} matches these filters.{' '}
    <button type="button" onClick={() => query.set(Object.fromEntries([...filters, 'from'].map((name) => [name, ''])))}>
      Clear the filters
    </button>
  </p>
)
