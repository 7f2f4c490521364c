package reconcile

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

// mostSelectorsKept is how many bytes the parsed selectors have that Selectors keeps, about: their texts, and termSize for each
// label and value.
const mostSelectorsKept, termSize = 48 << 20, 100

// Selectors keeps parsed selectors of objects, since parsing one at each event would hold up the events of all
// other objects. The zero value is empty. It is safe for concurrent use.
type Selectors struct {
	mu   sync.Mutex
	kept map[selectorKey]parsedSelector
	size int
}

type selectorKey struct {
	uid   types.UID
	field string
}

type parsedSelector struct {
	generation int64
	selector   labels.Selector
	err        error
	size       int
}

// Of returns the selector in the field of an object, parsed once for each generation of the object. As for
// metav1.LabelSelectorAsSelector, nil selects nothing. The field only tells several selectors of an object
// apart. The selector of an object without UID or generation, which is not stored yet, is not kept.
func (s *Selectors) Of(
	object metav1.Object, field string, selector *metav1.LabelSelector,
) (labels.Selector, error) {
	key, generation := selectorKey{object.GetUID(), field}, object.GetGeneration()
	if selector == nil || key.uid == "" || generation == 0 {
		return metav1.LabelSelectorAsSelector(selector)
	}

	s.mu.Lock()
	found, ok := s.kept[key]
	s.mu.Unlock()
	if ok && found.generation == generation {
		return found.selector, found.err
	}

	made := parsedSelector{generation: generation, size: selector.Size() + termSize*(1+fieldcheck.SelectorTerms(selector))}
	made.selector, made.err = metav1.LabelSelectorAsSelector(selector)
	s.keep(key, made)
	return made.selector, made.err
}

// keep drops others if there is no room, in no order: if more are used in turn than there is room for, most of
// them are still found.
func (s *Selectors) keep(key selectorKey, made parsedSelector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[selectorKey]parsedSelector{}
	}
	s.size += made.size - s.kept[key].size
	s.kept[key] = made
	for other, one := range s.kept {
		if s.size <= mostSelectorsKept {
			return
		}
		if other != key {
			delete(s.kept, other)
			s.size -= one.size
		}
	}
}
