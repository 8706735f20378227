import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

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
