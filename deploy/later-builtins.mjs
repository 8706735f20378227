/**
 * Polyfills for bundles that may run on Node 20. esbuild converts only syntax to that version, so this text defines the later functions
 * that the sources use, where they are missing. A test removes them and runs the programs.
 */
export const LATER_BUILTINS = `Promise.withResolvers??=function(){let resolve,reject;const promise=new this((a,b)=>{resolve=a;reject=b});return{promise,resolve,reject}};
Map.groupBy??=(items,keyOf)=>{const groups=new Map();let at=0;for(const item of items){const key=keyOf(item,at++),group=groups.get(key);group===undefined?groups.set(key,[item]):group.push(item)}return groups};`
