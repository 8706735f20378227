import { type StatusFacts, statusText } from './status-text.ts'
import { useNow } from './use-now.ts'
import { Name } from './visible.tsx'

export const StatusLine = ({ state, about }: Omit<StatusFacts, 'now'>) => {
  const now = useNow(1_000)
  const { text, tone } = statusText({ state, about, now })
  return (
    <p class={`status ${tone}`} role="status">
      <Name text={text} />
    </p>
  )
}
