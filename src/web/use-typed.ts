import { useEffect, useState } from 'preact/hooks'

/** Delay after the last key press. */
const TYPED_MS = 250

/** A text that a person types, once the person pauses. */
export const useTyped = (text: string): string => {
  const [typed, setTyped] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setTyped(text), TYPED_MS)
    return () => clearTimeout(timer)
  }, [text])
  return typed
}
