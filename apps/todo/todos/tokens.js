'use strict';

const jwt = require('jsonwebtoken');

/** Lets only requests pass that have a token of the auth service, and says whose it is in `req.user`. */
function requireToken(secret) {
  return (req, res, next) => {
    const [scheme, token] = (req.get('authorization') || '').split(' ');
    try {
      if (scheme !== 'Bearer') throw new Error('no token');
      req.user = jwt.verify(token, secret, { algorithms: ['HS256'] });
      next();
    } catch (error) {
      res.status(401).json({ error: error.message });
    }
  };
}

module.exports = { requireToken };
