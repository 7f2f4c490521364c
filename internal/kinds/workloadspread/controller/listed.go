package controller

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
	"github.com/afloat-project/afloat/internal/platform/watches"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch

// Listed follows a list of kinds of workloads that an administrator makes, so that changes count without a
// restart (WS-026).
type Listed struct {
	log    logr.Logger
	synced func() bool
	told   []func()
	// at is the key of the list; empty stands for that of WorkloadSpreads.
	at string

	mu   sync.RWMutex
	list workloadspread.AllowList
	err  error
}

// FollowLists starts to follow the ConfigMap in the install namespace once the manager runs, on every
// replica, for lists of kinds, each at a key of its own. newInformer makes the informer of its cache; nil
// means the library's.
func FollowLists(
	ctx context.Context, mgr manager.Manager, namespace string, newInformer watches.NewInformer,
	lists ...*Listed,
) error {
	named := fields.OneTermEqualSelector("metadata.name", workloadspread.ConfigMapName)
	// A cache of its own: that of the manager holds other ConfigMaps.
	own, err := cache.New(mgr.GetConfig(),
		cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
			Mapper:      mgr.GetRESTMapper(),
			NewInformer: newInformer,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {FieldSelector: named}}}}})
	if err != nil {
		return fmt.Errorf("making the cache of ConfigMap %s: %w", workloadspread.ConfigMapName, err)
	}
	if err := mgr.Add(matchconditions.Everywhere(own.Start)); err != nil {
		return fmt.Errorf("adding the cache of ConfigMap %s: %w", workloadspread.ConfigMapName, err)
	}

	informer, err := own.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching ConfigMap %s: %w", workloadspread.ConfigMapName, err)
	}

	for _, l := range lists {
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    l.read,
			UpdateFunc: func(_, object any) { l.read(object) },
			DeleteFunc: func(any) { l.set("") },
		})
		if err != nil {
			return fmt.Errorf("watching ConfigMap %s: %w", workloadspread.ConfigMapName, err)
		}
		l.synced = registration.HasSynced
	}

	return nil
}

// NewListed returns a list that is followed from FollowLists on, at a key of the ConfigMap.
func NewListed(key string, log logr.Logger) *Listed {
	return &Listed{log: log, at: key, synced: func() bool { return false }}
}

func (l *Listed) read(object any) {
	if config, ok := object.(*corev1.ConfigMap); ok {
		l.set(config.Data[l.key()])
	}
}

// WhenRead has do called whenever the list was read. It is called before the manager starts.
func (l *Listed) WhenRead(do func()) { l.told = append(l.told, do) }

func (l *Listed) set(text string) {
	l.keep(text)
	for _, do := range l.told {
		do()
	}
}

func (l *Listed) key() string { return cmp.Or(l.at, workloadspread.AllowListKey) }

func (l *Listed) keep(text string) {
	list, err := workloadspread.ParseListAt(l.key(), text)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		l.log.Error(err, "The list of kinds of workloads cannot be read, what was read before stays")
		return
	}
	l.list = list
}

// Kinds are those listed last that could be read.
func (l *Listed) Kinds() workloadspread.AllowList {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.list
}

// Ready tells whether the ConfigMap has been looked for since the start.
func (l *Listed) Ready() bool { return l.synced == nil || l.synced() }

// Err says why the present list cannot be read; nil if it can.
func (l *Listed) Err() error {
	if !l.Ready() {
		return fmt.Errorf("this manager has just started and has not read ConfigMap %s yet",
			workloadspread.ConfigMapName)
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.err
}
