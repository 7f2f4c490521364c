package podunavailablebudget

import policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"

// Status is the status with what was booked.
func (l *Ledger) Status() policyv1beta1.PodUnavailableBudgetStatus { return l.status }
