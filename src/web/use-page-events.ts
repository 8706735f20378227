import { useEffect, useReducer } from 'preact/hooks'
import { PAGE_SILENCE_MS } from '../protocol/limits/page.ts'
import { CallError, call, follow, forgetProof } from './api.ts'
import { type Action, FIRST_STATE, type PageState, reduce } from './store.ts'

/**
 * Shorter than the time that the approval service waits for a client to come back, so that no request is denied for a short interruption.
 */
const AGAIN_MS = 300
/** Interval at which user activity is reported. */
const HERE_MS = 60_000

/** Follows the events until they end. Returns why. */
const followOnce = async (dispatch: (action: Action) => void, stop: AbortSignal): Promise<'lost' | 'signed-out'> => {
  const silence = new AbortController()
  let late = setTimeout(() => silence.abort(), PAGE_SILENCE_MS)
  try {
    await follow(
      (news) => {
        clearTimeout(late)
        late = setTimeout(() => silence.abort(), PAGE_SILENCE_MS)
        dispatch(news)
      },
      AbortSignal.any([stop, silence.signal]),
    )
    return 'lost'
  } catch (error) {
    return error instanceof CallError && error.code === 'unauthorized' ? 'signed-out' : 'lost'
  } finally {
    clearTimeout(late)
  }
}

const followOn = async (dispatch: (action: Action) => void, stop: AbortSignal): Promise<void> => {
  while (!stop.aborted) {
    const why = await followOnce(dispatch, stop)
    dispatch({ type: 'connection', connection: why, at: Date.now() })
    if (why === 'signed-out') return forgetProof()
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS))
  }
}

/** Reports activity, so that the session continues while the page is used. */
const tellHere = (stop: AbortSignal): void => {
  let told = 0
  const here = (): void => {
    if (performance.now() - told < HERE_MS) return
    told = performance.now()
    call('here').catch(() => undefined)
  }
  for (const name of ['pointerdown', 'keydown', 'wheel', 'touchstart']) addEventListener(name, here, { passive: true, signal: stop })
}

export const usePageEvents = (): readonly [PageState, (action: Action) => void] => {
  const [state, dispatch] = useReducer<PageState, Action>(reduce, FIRST_STATE)
  useEffect(() => {
    const stop = new AbortController()
    void followOn(dispatch, stop.signal)
    tellHere(stop.signal)
    return () => stop.abort()
  }, [])
  return [state, dispatch]
}
