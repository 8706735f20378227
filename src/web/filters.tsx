import type { ComponentChildren } from 'preact'
import { shownSentence } from '../base/visible-text.ts'

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
