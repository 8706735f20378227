import { useEffect, useRef } from 'preact/hooks'
import type { ShownQuestion } from './store.ts'

/** Tells a person who looks elsewhere; of the command nothing, for others may see the screen. */
export const useNotice = (waiting: readonly ShownQuestion[]): void => {
  const known = useRef(new Set<string>())
  useEffect(() => {
    const fresh = waiting.filter(({ item }) => !known.current.has(item.question_id))
    known.current = new Set(waiting.map(({ item }) => item.question_id))
    if (fresh.length === 0 || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return
    const notice = new Notification('x0x: a command waits for your decision', { tag: 'x0x-question' })
    notice.addEventListener('click', () => {
      window.focus()
      notice.close()
    })
  }, [waiting.map(({ item }) => item.question_id).join()])
}
