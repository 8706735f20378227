import { useEffect, useState } from 'preact/hooks'

/** The present time, again after each `ms`. */
export const useNow = (ms: number): number => {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), ms)
    return () => clearInterval(timer)
  }, [ms])
  return now
}
