import { useEffect, useRef, useState } from 'preact/hooks'
import { type LifecycleEvent, isOver, runOf } from '../../protocol/events/lifecycle.ts'
import { MAX_FOLLOWED_RUNS } from '../../protocol/limits/approvals.ts'
import { call } from '../api.ts'
import { lastOfEach } from '../store.ts'

const WATCH_MS = 2_000

/** Has the output of running runs of this machine sent, and returns the runs that are live. `key` is watched too. */
export const useWatched = (events: readonly LifecycleEvent[], key: string | null = null): ReadonlySet<string> => {
  const [going, setGoing] = useState<ReadonlySet<string>>(new Set())
  const wanted = useRef<readonly string[]>([])
  const live = lastOfEach(events).filter((event) => !isOver(event))
  wanted.current = [...(key === null ? [] : [key]), ...live.map(runOf)].slice(0, MAX_FOLLOWED_RUNS)
  useEffect(() => {
    const stop = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const watch = async (): Promise<void> => {
      const said = document.hidden
        ? null
        : await call<{ readonly going: readonly string[] }>('watch', { followed: wanted.current }, stop.signal).catch(() => null)
      if (said !== null) setGoing(new Set(said.going))
      if (!stop.signal.aborted) timer = setTimeout(() => void watch(), WATCH_MS)
    }
    void watch()
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [])
  return going
}
