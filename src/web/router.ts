import { useEffect, useState } from 'preact/hooks'

/** Views in the order of the navigation. A digit opens each. */
export const VIEWS = [
  { id: 'overview', title: 'Overview' },
  { id: 'approvals', title: 'Approvals' },
  { id: 'peers', title: 'Peers' },
  { id: 'runs', title: 'Runs' },
  { id: 'fanouts', title: 'Fan-outs' },
  { id: 'audit', title: 'Audit log' },
  { id: 'trust', title: 'Trust' },
  { id: 'enrol', title: 'Enrolment' },
  { id: 'policy', title: 'Policy' },
] as const

export type ViewId = (typeof VIEWS)[number]['id']

export interface PageRoute {
  readonly view: ViewId
  /** What the view shows, such as the key of a run, or null for all. */
  readonly item: string | null
  readonly query: Readonly<Record<string, string>>
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** The route of a fragment, such as `#/runs/KEY?result=failed`. Anything else is the overview. */
export const routeOf = (hash: string): PageRoute => {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2)
  const [name = '', item = ''] = path.split('/', 2)
  const view = VIEWS.find(({ id }) => id === name)?.id ?? 'overview'
  return { view, item: item === '' ? null : decoded(item), query: Object.fromEntries(new URLSearchParams(query)) }
}

/** Address of a view. Empty values are left out. */
export const hrefOf = (view: ViewId, item: string | null = null, query: Readonly<Record<string, string>> = {}): string => {
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== '')).toString()
  return `#/${view}${item === null ? '' : `/${encodeURIComponent(item)}`}${words === '' ? '' : `?${words}`}`
}

export const go = (href: string): void => {
  location.hash = href
}

/** The route of the address, and a function that changes its query in place, without an entry in the history. */
export const useRoute = (): readonly [PageRoute, (changes: Readonly<Record<string, string>>) => void] => {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const read = (): void => setHash(location.hash)
    addEventListener('hashchange', read)
    return () => removeEventListener('hashchange', read)
  }, [])
  const change = (changes: Readonly<Record<string, string>>): void => {
    const { view, item, query } = routeOf(location.hash)
    history.replaceState(null, '', hrefOf(view, item, { ...query, ...changes }))
    setHash(location.hash)
  }
  return [routeOf(hash), change]
}

/** The order after a click on a heading: ascending, then descending, then the default order, which is empty. */
export const nextOrder = (order: string, column: string): string => (order === column ? `-${column}` : order === `-${column}` ? '' : column)

/** The order in an address, or null for the default one. */
export const orderIn = <O extends string>(orders: readonly O[], text: string): O | null => orders.find((order) => order === text) ?? null

/** The query of the route, as a view reads and changes it. */
export interface ViewQuery {
  get(name: string): string
  set(changes: Readonly<Record<string, string>>): void
}
