import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

/** How many of a list are shown before somebody asks for more. */
const FIRST = 20

/** A list, the beginning of which is shown; of the rest there is a count, and a way to it. */
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
