import { shown, shownSentence, strangeLetters } from '../base/visible-text.ts'
import { tokenParts } from './token-text.ts'

/** One token of a command, or a path: every character of it shows itself, and none moves what stands beside it. */
export const Token = ({ text }: { readonly text: string }) => (
  <bdi class="token">
    {tokenParts(text).map((part, at) => (
      <span key={at} class={part.kind}>
        {part.text}
      </span>
    ))}
  </bdi>
)

/** Says which letters of a text are of other scripts than they may seem to be. */
export const Strange = ({ texts }: { readonly texts: readonly string[] }) => {
  const letters = [...new Set(texts.flatMap(strangeLetters))]
  return letters.length === 0 ? null : <p class="warning">Not of ASCII: {letters.slice(0, 20).join(' ')}</p>
}

/** A foreign name, on one line. */
export const Name = ({ text }: { readonly text: string }) => <bdi>{shownSentence(text)}</bdi>

/** Foreign output, with its lines. */
export const Output = ({ text, label }: { readonly text: string; readonly label: string }) => (
  <pre class="output" role="region" aria-label={label} tabIndex={0}>
    <bdi>{shown(text)}</bdi>
  </pre>
)
