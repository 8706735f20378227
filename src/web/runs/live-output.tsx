import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Output } from '../visible.tsx'

/** The growing output of a run. It scrolls with the end, and "Pause" holds it for reading. */
export const LiveOutput = ({ text }: { readonly text: string }) => {
  const [held, setHeld] = useState<string | null>(null)
  const place = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const output = place.current?.firstElementChild
    if (held === null && output !== null && output !== undefined) output.scrollTop = output.scrollHeight
  }, [text, held])
  return (
    <div ref={place} class="live">
      <Output text={held ?? text} label="Output so far" />
      <button type="button" aria-pressed={held !== null} onClick={() => setHeld(held === null ? text : null)}>
        Pause
      </button>
      {held !== null && <span class="quiet"> {held === text ? 'Paused.' : 'Paused. There is new output.'}</span>}
    </div>
  )
}
