package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// Tell registers a function that is called with each object of a followed kind that appears, goes, or changes
// in a field that is read, and with the Deployment of such a ReplicaSet (WS-121). It must be called before
// the first Follow.
func (k *Kinds) Tell(do func(namespace string, changed workloadspread.Reference)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, do)
}

// Follow starts to watch the kind of a target, and the kinds between it and its pods.
func (k *Kinds) Follow(ctx context.Context, target workloadspread.Reference) error {
	kinds := []schema.GroupKind{target.GroupKind}
	if workloadspread.BuiltIn(target.GroupKind) {
		kinds = append(kinds, workloadkind.Of(target.GroupKind).Children...)
	}
	if custom, ok := k.listed().Workload(target.GroupKind); ok {
		for _, sub := range custom.SubResources {
			kinds = append(kinds, sub.GroupKind())
		}
	} else if !workloadspread.BuiltIn(target.GroupKind) {
		return nil
	}

	for _, kind := range kinds {
		if err := k.follow(ctx, kind); err != nil {
			return err
		}
	}

	return nil
}

func (k *Kinds) follow(ctx context.Context, kind schema.GroupKind) error {
	k.mu.Lock()
	_, done := k.followed[kind]
	k.mu.Unlock()
	if done {
		return nil
	}

	object, err := k.empty(kind)
	if err != nil {
		return fmt.Errorf("watching %s: %w", kind, err)
	}
	informer, err := k.caches.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %s: %w", kind, err)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if _, done := k.followed[kind]; done {
		return nil
	}
	if _, err := informer.AddEventHandler(k.handler(kind)); err != nil {
		return fmt.Errorf("watching %s: %w", kind, err)
	}

	k.followed[kind] = informer
	return nil
}

func (k *Kinds) handler(kind schema.GroupKind) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { k.tell(kind, object) },
		UpdateFunc: func(old, object any) {
			if !slim.SameWorkload(old, object) {
				k.tell(kind, object)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			k.tell(kind, object)
		},
	}
}

func (k *Kinds) tell(kind schema.GroupKind, object any) {
	of, ok := object.(client.Object)
	if !ok {
		return
	}

	k.mu.Lock()
	told := k.told
	k.mu.Unlock()

	references := []workloadspread.Reference{{GroupKind: kind, Name: of.GetName()}}
	if parent, ok := workloadspread.ControllerOf(of); ok && k.Known(parent.GroupKind) {
		references = append(references, parent)
	}

	for _, do := range told {
		for _, reference := range references {
			do(of.GetNamespace(), reference)
		}
	}
}
