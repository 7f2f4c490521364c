// Package plugintest provides an API server in memory, and what runs the plugin's commands against it.
//
// The server stores documents, each kind in one version. It answers discovery, gets, lists, tables, watches,
// creations, updates, deletions, and JSON, merge and strategic patches, of objects and of their subresource
// status. It decides by the rules of internal/memcluster/rules, gives UIDs, names, versions and generations,
// stores no dry run, and keeps what is deleted as long as it has finalizers. Watches begin after a version,
// end when a test says so, and expire.
//
// It does not validate, default, convert or prune, has no server-side apply, pages, rights or subresources
// but status, and removes nothing with its last finalizer or with its owner. Tests act as the controllers, as
// other clients, and as a network that fails, through the hooks of Server.
package plugintest
