package watches

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// changesTime is for how many seconds changes are watched at once. An API server sends a bookmark two seconds before it ends a watch.
const changesTime = 3

// watchChanges reads what changed after the version that the informer had, from a watch of its own, and sets changed as soon as that has
// told of the version that was stored, by an object or a bookmark. It costs the same however many objects there are. An API
// server that has no such bookmark, or does not know that version any more, leaves the answer to the list.
func (g *gap) watchChanges(ctx context.Context, version string) {
	changed := map[string]string{}
	for ctx.Err() == nil {
		events, err := g.source.WatchWithContext(ctx, metav1.ListOptions{
			ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(changesTime)),
		})
		if err != nil {
			return
		}
		failed := false
		for event := range events.ResultChan() {
			key, err := toolscache.MetaNamespaceKeyFunc(event.Object)
			if failed = failed || event.Type == apiwatch.Error || err != nil; failed {
				events.Stop() // the channel is closed then
				continue
			}
			version = versionOf(event.Object)
			switch event.Type {
			case apiwatch.Added, apiwatch.Modified:
				changed[key] = version
			case apiwatch.Deleted:
				changed[key] = ""
			case apiwatch.Bookmark, apiwatch.Error:
			}
			if atLeast(version, g.stored) {
				g.changed.Store(&changed)
				events.Stop()
				return
			}
		}
		if failed {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(currentAgain):
		}
	}
}
