package podunavailablebudget

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// Limits is what budgets allow to one plan.
type Limits struct {
	// covering returns the budgets that cover a pod, or an error if they are not known.
	covering func(*corev1.Pod) ([]*Rules, error)
	ledgers  map[*Rules]*Ledger
	options  Options
	now      time.Time
}

var _ disruption.Limits = (*Limits)(nil)

// NewLimits returns the limits by the present state of the budgets.
func NewLimits(covering func(*corev1.Pod) ([]*Rules, error), options Options, now time.Time) *Limits {
	return &Limits{covering, map[*Rules]*Ledger{}, options, now}
}

// Take implements disruption.Limits.
func (l *Limits) Take(pod *corev1.Pod, by disruption.Operation) (refusal string) {
	if _, free := Free(pod, l.now); free { // whether it can be booked or not
		return ""
	}
	covering, err := l.covering(pod)
	if err != nil {
		return err.Error()
	}

	rules := Related(pod, covering)
	if rules == nil {
		return ""
	}

	ledger := l.ledgers[rules]
	if ledger == nil {
		ledger = NewLedger(rules, l.options, l.now)
		l.ledgers[rules] = ledger
	}
	if decision := ledger.Book(pod, by); !decision.Allowed {
		return decision.Reason
	}

	return ""
}
