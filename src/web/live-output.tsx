import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Output } from './visible.tsx'

/** What a run has written so far, which comes again and again: it is followed to its end, or stands still to be read. */
export const LiveOutput = ({ text }: { readonly text: string }) => {
  const [held, setHeld] = useState<string | null>(null)
  const place = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const output = place.current?.firstElementChild
    if (held === null && output !== null && output !== undefined) output.scrollTop = output.scrollHeight
  }, [text, held])
  return (
    <div ref={place} class="live">
      <Output text={held ?? text} label="What it wrote so far" />
      <button type="button" aria-pressed={held !== null} onClick={() => setHeld(held === null ? text : null)}>
        Pause
      </button>
      {held !== null && <span class="quiet"> {held === text ? 'Paused.' : 'Paused; it has written more.'}</span>}
    </div>
  )
}
