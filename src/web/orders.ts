/** The order after a click on a heading: ascending, then descending, then the default order, which is empty. */
export const nextOrder = (order: string, column: string): string => (order === column ? `-${column}` : order === `-${column}` ? '' : column)

/** The order in an address, or null for the default one. */
export const orderIn = <O extends string>(orders: readonly O[], text: string): O | null => orders.find((order) => order === text) ?? null

/** The `aria-sort` of a column. */
export const sortOf = (column: string, order: string) => (order === column ? 'ascending' : order === `-${column}` ? 'descending' : 'none')
