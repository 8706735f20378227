import { useEffect, useRef, useState } from 'preact/hooks'
import { call } from './api.ts'

export interface Polled<T> {
  readonly value: T | null
  readonly problem: string | null
}

/** The answer of a call, repeated every `ms` while the page is visible. With 0 it is called once for each `key`. */
export const usePolled = <T>(name: string, body: object, ms: number, key = ''): Polled<T> => {
  const [polled, setPolled] = useState<Polled<T>>({ value: null, problem: null })
  const latest = useRef(body)
  latest.current = body
  useEffect(() => {
    const stop = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const ask = async (): Promise<void> => {
      try {
        if (!document.hidden) setPolled({ value: await call<T>(name, latest.current, stop.signal), problem: null })
      } catch (error) {
        if (!stop.signal.aborted) setPolled((last) => ({ ...last, problem: error instanceof Error ? error.message : String(error) }))
      }
      if (!stop.signal.aborted && ms > 0) timer = setTimeout(() => void ask(), ms)
    }
    void ask()
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [name, ms, key])
  return polled
}
