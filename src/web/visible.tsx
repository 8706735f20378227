import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { shown, shownSentence, strangeLetters } from '../base/visible-text.ts'
import { tokenParts } from './token-text.ts'

/** A token of a command, or a path, with every character visible and none that reorders its neighbours. */
export const Token = ({ text }: { readonly text: string }) => (
  <bdi class="token">
    {tokenParts(text).map((part, at) => (
      <span key={at} class={part.kind}>
        {part.text}
      </span>
    ))}
  </bdi>
)

/** Names the letters of other scripts in a text. */
export const Strange = ({ texts }: { readonly texts: readonly string[] }) => {
  const letters = [...new Set(texts.flatMap(strangeLetters))]
  return letters.length === 0 ? null : <p class="warning">Not ASCII: {letters.slice(0, 20).join(' ')}</p>
}

/** A foreign name on one line. */
export const Name = ({ text }: { readonly text: string }) => <bdi>{shownSentence(text)}</bdi>

interface OutputProps {
  readonly text: string
  readonly label: string
  /** Marks parts of the escaped text. It leaves out no character of it. */
  readonly mark?: (escaped: string) => ComponentChildren
}

/** Foreign output with its line breaks. */
export const Output = ({ text, label, mark = (escaped) => escaped }: OutputProps) => (
  <pre class="output" role="region" aria-label={label} tabIndex={0}>
    <bdi>{mark(shown(text))}</bdi>
  </pre>
)

/** Items that are shown first. */
const FIRST = 20

/** The beginning of a list, with the number of further items and a button to show them. */
export const More = <T,>({
  all,
  of,
  show,
}: {
  readonly all: readonly T[]
  readonly of: string
  readonly show: (one: T, at: number) => ComponentChildren
}) => {
  const [isWhole, setWhole] = useState(false)
  const shown = isWhole ? all : all.slice(0, FIRST)
  return (
    <>
      {shown.map(show)}
      {all.length > FIRST && (
        <button type="button" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
          {isWhole ? `Only the first ${FIRST}` : `The first ${FIRST} of ${all.length} ${of}: show all`}
        </button>
      )}
    </>
  )
}
